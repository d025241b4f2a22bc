package index

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// TestMatchingEndsWithItsContext checks, for every access path, that regular expressions match nothing once the context
// has ended, and that look-ups still find their series.
func TestMatchingEndsWithItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []int{smallSet, 4 * fewSeries} {
		series := make([]labels.Labels, n)
		for i := range series {
			series[i] = labels.FromStrings(
				labels.MetricName, "up", "pod", fmt.Sprintf("pod-%d", i), "zone", fmt.Sprint("z", i%2),
			)
		}
		set := New(series)
		for _, ms := range [][]*labels.Matcher{
			{labels.MustNewMatcher(labels.MatchRegexp, "pod", ".*p.*o.*d.*")},
			{labels.MustNewMatcher(labels.MatchRegexp, "pod", "pod-.*")},
			{labels.MustNewMatcher(labels.MatchNotRegexp, "pod", "pod-.*x")},
			{labels.MustNewMatcher(labels.MatchEqual, "zone", "z1"), labels.MustNewMatcher(labels.MatchNotRegexp, "pod", ".*x.*")},
			{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".*u.*p.*")},
		} {
			q := Prepare(ms)
			require.NotEmpty(t, set.MatchPrepared(t.Context(), &q), "%v", ms)
			require.Empty(t, set.MatchPrepared(ended, &q), "%v", ms)
			x := NewMatching(ended)
			require.False(t, x.MatchesAll(series[1], ms), "%v", ms)
		}
		q := Prepare([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "pod", "pod-1")})
		require.Equal(t, []uint32{1}, set.MatchPrepared(ended, &q))
	}
}
