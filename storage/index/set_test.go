package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// naiveMatch returns the result that Match must return, by testing every series.
func naiveMatch(series []labels.Labels, ms []*labels.Matcher) []uint32 {
	var positions []uint32
next:
	for i, ls := range series {
		for _, m := range ms {
			if !m.Matches(ls.Get(m.Name)) {
				continue next
			}
		}
		positions = append(positions, uint32(i))
	}
	return positions
}

// fleet returns n series like those of a fleet of machines, some without some labels.
func fleet(n int, seed uint64) []labels.Labels {
	r := rand.New(rand.NewPCG(seed, 1))
	b := labels.NewScratchBuilder(8)
	series := make([]labels.Labels, 0, n)
	for i := range n {
		b.Reset()
		b.Add(labels.MetricName, "http_requests_total")
		b.Add("instance", fmt.Sprintf("host-%d:9100", i/20))
		if r.IntN(10) > 0 {
			b.Add("job", []string{"api", "api-canary", "web", "batch"}[r.IntN(4)])
		}
		if r.IntN(3) > 0 {
			b.Add("code", []string{"200", "204", "301", "404", "500", "503"}[r.IntN(6)])
		}
		b.Add("path", fmt.Sprintf("/v1/%s/%d", []string{"users", "orders", "items"}[r.IntN(3)], i%20))
		if r.IntN(100) == 0 {
			b.Add("rare", fmt.Sprint(r.IntN(5)))
		}
		b.Add("unique", fmt.Sprint(i))
		b.Sort()
		series = append(series, b.Labels())
	}
	return series
}

var matcherValues = []string{
	"", "a", "host-3:9100", "host-1:9100", "api", "web", "200", "404", "/v1/users/3", "http_requests_total", "1", "7",
	"nothing",
}

var matcherExpressions = []string{
	"", ".*", ".+", "api|web", "api|", "|", "api|api", "host-1.*", "host-1.+", "host-[12]:9100", ".*9100", "(?i)API",
	"/v1/users/.*", "/v1/(users|items)/[0-9]", ".*orders.*", "5..", "[45]..", "20[04]", "nothing.*", "nothing", "a?",
	".", "(?i)host-3.*", "1.*|7", "host-(1|2|3):.*", "http_.*", "1|2|3|4|5|6|7|8|9|10|11",
}

var labelNames = []string{"instance", "job", "code", "path", "rare", "unique", "missing", labels.MetricName, ""}

func randomMatcher(r *rand.Rand) *labels.Matcher {
	name := labelNames[r.IntN(len(labelNames))]
	kind := labels.MatchType(r.IntN(4))
	value := matcherValues[r.IntN(len(matcherValues))]
	if kind >= labels.MatchRegexp {
		value = matcherExpressions[r.IntN(len(matcherExpressions))]
	}
	return labels.MustNewMatcher(kind, name, value)
}

func TestMatchAgreesWithTestingEverySeries(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, 64, 65, 1000, 3000} {
		series := fleet(n, 7)
		set := New(series)
		r := rand.New(rand.NewPCG(uint64(n), 2))
		for range 1500 {
			ms := make([]*labels.Matcher, r.IntN(4))
			for i := range ms {
				ms[i] = randomMatcher(r)
			}
			require.Equal(t, naiveMatch(series, ms), nonEmpty(set.Match(ms)), "%d series, matchers %v", n, ms)
			fresh := New(series) // no column is filled yet
			require.Equal(t, naiveMatch(series, ms), nonEmpty(fresh.Match(ms)), "%d series, fresh, matchers %v", n, ms)
		}
	}
}

func nonEmpty(p []uint32) []uint32 {
	if len(p) == 0 {
		return nil
	}
	return p
}

func TestEachExpressionAlone(t *testing.T) {
	series := fleet(400, 3)
	for _, name := range labelNames {
		for _, kind := range []labels.MatchType{
			labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp,
		} {
			values := matcherValues
			if kind >= labels.MatchRegexp {
				values = matcherExpressions
			}
			for _, v := range values {
				ms := []*labels.Matcher{labels.MustNewMatcher(kind, name, v)}
				require.Equal(t, naiveMatch(series, ms), nonEmpty(New(series).Match(ms)), "%v", ms)
			}
		}
	}
}

func TestNamesAndValues(t *testing.T) {
	series := []labels.Labels{
		labels.FromStrings("__name__", "up", "job", "b"),
		labels.FromStrings("__name__", "up", "job", "a", "zone", "1"),
		labels.FromStrings("__name__", "up"),
	}
	set := New(series)
	require.Equal(t, 3, set.Len())
	require.Equal(t, series[1], set.Labels(1))
	require.Equal(t, []string{"__name__", "job", "zone"}, set.LabelNames([]uint32{0, 1, 2}))
	require.Equal(t, []string{"__name__", "job"}, set.LabelNames([]uint32{0, 2}))
	require.Empty(t, set.LabelNames(nil))
	require.Equal(t, []string{"a", "b"}, set.LabelValues(t.Context(), "job", []uint32{0, 1, 2}))
	require.Equal(t, []string{"up"}, set.LabelValues(t.Context(), "__name__", []uint32{2}))
	require.Empty(t, set.LabelValues(t.Context(), "zone", []uint32{0}))
	require.Empty(t, set.LabelValues(t.Context(), "nope", []uint32{0, 1, 2}))
}

func TestNamesAndValuesOfALargeSet(t *testing.T) {
	series := fleet(500, 1)
	set := New(series)
	for _, positions := range [][]uint32{set.Match(nil), {1, 5, 77, 300}} {
		names, values := map[string]struct{}{}, map[string]struct{}{}
		for _, p := range positions {
			series[p].Range(func(l labels.Label) { names[l.Name] = struct{}{} })
			if v := series[p].Get("code"); v != "" {
				values[v] = struct{}{}
			}
		}
		require.Equal(t, sortedKeys(names), set.LabelNames(positions))
		require.Equal(t, sortedKeys(values), set.LabelValues(t.Context(), "code", positions))
	}
	// The caller owns the result: modifying it doesn't change the set.
	set.LabelValues(t.Context(), "code", set.Match(nil))[0] = "changed"
	set.LabelNames(set.Match(nil))[0] = "changed"
	require.NotContains(t, set.LabelValues(t.Context(), "code", set.Match(nil)), "changed")
	require.NotContains(t, set.LabelNames(set.Match(nil)), "changed")
}

func TestManyGoroutinesMakeColumnsOnce(t *testing.T) {
	series := fleet(2000, 5)
	set := New(series)
	ms := []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchRegexp, "path", ".*orders.*"),
		labels.MustNewMatcher(labels.MatchEqual, "job", "web"),
	}
	want := naiveMatch(series, ms)
	var wg sync.WaitGroup
	got := make([][]uint32, 8)
	for i := range got {
		wg.Go(func() {
			for range 20 {
				got[i] = set.Match(ms)
				set.LabelValues(t.Context(), "code", set.Match(nil))
				set.Bytes()
			}
		})
	}
	wg.Wait()
	for _, g := range got {
		require.Equal(t, want, g)
	}
}

func TestBytesGrowWithColumnsButNotWithMadeUpNames(t *testing.T) {
	set := New(fleet(1000, 1))
	before := set.Bytes()
	require.Positive(t, before)
	set.Match([]*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "path", ".*orders.*")})
	require.Greater(t, set.Bytes(), before)
	for i := range 10 * maxAbsent {
		require.Empty(t, set.Match([]*labels.Matcher{
			labels.MustNewMatcher(labels.MatchRegexp, fmt.Sprint("no", i), ".+"),
		}))
	}
	require.LessOrEqual(t, len(set.columns), maxAbsent+1)
}

func TestPrefixedFindsTheRange(t *testing.T) {
	c := &column{values: []string{"a", "ab", "abc", "abd", "ac", "b", "b\xff", "c"}}
	for _, prefix := range []string{"", "a", "ab", "abd", "b", "b\xff", "bb", "d", "0"} {
		from, to := c.prefixRange(prefix)
		for i, v := range c.values {
			require.Equal(t, strings.HasPrefix(v, prefix), i >= from && i < to, "prefix %q, value %q", prefix, v)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add(uint64(1), uint8(2), uint8(3), "host-1.*", "api|")
	f.Add(uint64(9), uint8(1), uint8(0), "", "200")
	f.Add(uint64(9), uint8(3), uint8(3), ".+", "(?i)x|y*")
	series := fleet(300, 11)
	set := New(series)
	f.Fuzz(func(t *testing.T, pick uint64, kindA, kindB uint8, a, b string) {
		names := slices.Clone(labelNames)
		ma, err := labels.NewMatcher(labels.MatchType(kindA%4), names[pick%uint64(len(names))], a)
		if err != nil {
			return
		}
		mb, err := labels.NewMatcher(labels.MatchType(kindB%4), names[pick/16%uint64(len(names))], b)
		if err != nil {
			return
		}
		for _, ms := range [][]*labels.Matcher{{ma}, {mb}, {ma, mb}} {
			require.Equal(t, naiveMatch(series, ms), nonEmpty(set.Match(ms)), "%v", ms)
		}
	})
}
