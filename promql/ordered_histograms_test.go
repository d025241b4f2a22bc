package promql

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestSumsOfHistogramsThatDependOnTheirOrder checks queries of native histograms whose zero thresholds change, whose
// observations are in buckets inside the zero bucket, or whose counts almost overflow. While raw samples are kept,
// answers must be the same as from raw samples. After they have expired, an answer that differs must have an info about
// expired samples without a bound.
func TestSumsOfHistogramsThatDependOnTheirOrder(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 33))
	store := openRolled(t, memory.New(), 5*24*time.Hour, 0)
	kinds := []string{"gauge histograms of changing zero thresholds", "gauge histograms that overlap their zero buckets",
		"histograms that overlap their zero buckets", "histograms of changing schemas and zero thresholds",
		"large gauge histograms"}
	for _, kind := range kinds {
		g := bucketfntest.SeriesGenerator{Rand: r, Kind: kind}
		b := store.NewBatch("default")
		ref, err := b.Define(nil, labels.FromStrings(labels.MetricName, strings.ReplaceAll(kind, " ", "_")))
		require.NoError(t, err)
		for at := someDay + minute; at <= someDay+12*hour; at += minute {
			g.Next()
			require.NoError(t, b.Histogram(ref, at, 0, nil, g.H.Float.Copy()))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	require.NoError(t, store.SealAll(t.Context()))
	rivals := newRivals(t, NewQueryable(store.Store), nil)
	var asks []asked
	for _, kind := range kinds {
		for _, fn := range []string{"sum_over_time", "avg_over_time", "rate", "increase"} {
			asks = append(asks, asked{text: fn + "(" + strings.ReplaceAll(kind, " ", "_") + "[3h])",
				start: someDay + 3*hour, end: someDay + 12*hour, step: 3 * time.Hour})
		}
	}
	answers := func(mode string) (all []answer) {
		for _, a := range asks {
			rivals.ctx = newRollupContext(t, mode)
			got, _ := rivals.answerOf(a)
			all = append(all, got)
		}
		return all
	}
	largest := func(labels.Labels, int64) float64 { return 1e6 }
	want := answers("raw")
	for i, got := range answers("exact") {
		require.Empty(t, want[i].differsBy(got, largest), asks[i].text)
	}
	(&rollupContest{t: t, store: store}).passes(time.UnixMilli(someDay + 7*day))
	told := map[string]int{}
	for i, got := range answers("exact") {
		text := asks[i].text
		if shortfallsIn(got.notes) == 0 {
			require.Empty(t, want[i].withoutHints(got).differsBy(got, largest), text)
			continue
		}
		require.NotContains(t, strings.Join(got.notes, " "), "differ by at most", text)
		told[text]++
	}
	require.NotEmpty(t, told)
	require.NotContains(t, told, asks[0].text)
	require.Contains(t, told, "sum_over_time(gauge_histograms_that_overlap_their_zero_buckets[3h])")
	require.Contains(t, told, "avg_over_time(large_gauge_histograms[3h])")
}
