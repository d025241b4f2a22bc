package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// TestReadsEndAmongSlowMatches cancels reads whose matches of a regular expression are slow: matching all values would
// take hours. The reads must end with the error of their context. With -short, as in runs with the race detector, a
// match takes a fifth of the time.
func TestReadsEndAmongSlowMatches(t *testing.T) {
	stars := 2000
	if testing.Short() {
		stars = 300
	}
	slow := strings.Repeat(".*", stars)
	ts := openTestStore(t, nil)
	write := func() {
		b := ts.NewBatch("t")
		for i := range 5000 {
			long := fmt.Sprintf("%s%d", strings.Repeat("x", 100), i)
			s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "up", "pod", long, "job", "web"))
			require.NoError(t, err)
			require.NoError(t, b.Float(s, ts.now.UnixMilli(), 0, 1))
			s, err = b.Define(nil, labels.FromStrings(labels.MetricName, "m"+long))
			require.NoError(t, err)
			require.NoError(t, b.Float(s, ts.now.UnixMilli(), 0, 1))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	up := labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")
	ends := func(where string) {
		for name, ms := range map[string][]*labels.Matcher{
			"values":     {up, labels.MustNewMatcher(labels.MatchRegexp, "pod", slow)},
			"not values": {up, labels.MustNewMatcher(labels.MatchNotRegexp, "pod", slow)},
			"names":      {labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, slow)},
			"candidates": {up, labels.MustNewMatcher(labels.MatchEqual, "job", "web"), labels.MustNewMatcher(labels.MatchRegexp, "pod", slow)},
		} {
			q := query.Query{Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: ms}
			for read, do := range map[string]func(ctx context.Context) error{
				"series": func(ctx context.Context) error { _, err := ts.Select(ctx, q); return err },
				"texts":  func(ctx context.Context) error { _, err := ts.LabelValues(ctx, "job", q); return err },
				"delete": func(ctx context.Context) error {
					_, err := ts.head.SlotPartitionsOf(
						ctx, "t", &format.Tombstone{Start: q.MinT, End: q.MaxT, Matchers: ms},
					)
					if err == nil && ts.HeadStats().Series == 0 {
						return context.DeadlineExceeded
					}
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				require.ErrorIs(t, do(ctx), context.DeadlineExceeded, "%s of %s, %s", read, name, where)
				cancel()
			}
		}
	}
	write()
	ends("unsealed")
	ts.now = ts.now.Add(24 * time.Hour)
	require.NoError(t, ts.SealAll(t.Context()))
	ends("sealed")
}
