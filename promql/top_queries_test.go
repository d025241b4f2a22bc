package promql

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTopQueriesAreCounted(t *testing.T) {
	var top topQueries
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ran := func(query string, seconds float64, samples int64, tenants ...string) {
		top.add(TopQuery{Query: query, Tenants: tenants, Count: 1, Seconds: seconds, Slowest: seconds, Samples: samples,
			PeakSamples: samples, Last: now})
	}
	names := func(by string, tenants ...string) (list []string) {
		for _, q := range top.list(tenants, by, 100, now).Queries {
			list = append(list, fmt.Sprint(q.Query, " ", q.Count))
		}
		return list
	}
	require.Empty(t, names("time", "a"))
	ran("often", 1, 1, "a")
	ran("often", 2, 1, "a")
	ran("slow", 2.5, 7, "a")
	ran("both", 9, 9, "a", "b")
	ran("often", 100, 100, "b")
	require.Equal(t, []string{"often 2", "slow 1"}, names("time", "a"))
	require.Equal(t, []string{"slow 1", "often 2"}, names("slowest", "a"))
	require.Equal(t, []string{"slow 1", "often 2"}, names("samples", "a"))
	require.Equal(t, []string{"often 1", "both 1", "often 2", "slow 1"}, names("time", "a", "b"))
	require.Equal(t, 1.0, top.list([]string{"a"}, "count", 1, now).Queries[0].Seconds-2)

	now = now.Add(topPeriod + time.Minute)
	ran("often", 1, 1, "a")
	require.Equal(t, []string{"often 3", "slow 1"}, names("count", "a"), "the hour before counts, too")
	now = now.Add(topPeriod)
	ran("new", 1, 1, "a")
	require.Equal(t, []string{"new 1", "often 1"}, names("count", "a"))
	now = now.Add(3 * topPeriod)
	require.Empty(t, names("count", "a"), "what is long ago isn't told, even where nothing came since")
	ran("new", 1, 1, "a")
	require.Equal(t, []string{"new 1"}, names("count", "a"))

	for i := range 3 * maxTopQueries {
		ran(fmt.Sprint("q", i), 0.001, 1, "a")
	}
	ran(strings.Repeat("x", 10*maxTopBytes), 5, 1, "a")
	all := top.list([]string{"a"}, "time", 2*maxTopQueries, now)
	require.Len(t, all.Queries, maxTopQueries)
	require.LessOrEqual(t, len(all.Queries[0].Query), maxTopBytes+len("…"))
	require.Equal(t, "new", all.Queries[1].Query, "what took the least was forgotten")
}
