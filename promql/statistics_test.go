package promql

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestStatisticsOfGaugeHistograms checks queries of the count, sum and average of the increase of native histograms
// that are gauges. Prometheus then compares only the counts of these histograms to detect resets. While raw samples are
// kept, answers must be the same as from raw samples. After they have expired, an answer must have an info.
func TestStatisticsOfGaugeHistograms(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	store := openRolled(t, memory.New(), 5*24*time.Hour, 0)
	g := bucketfntest.SeriesGenerator{Rand: rand.New(rand.NewPCG(seed, 34)), Kind: "gauge histograms"}
	b := store.NewBatch("default")
	ref, err := b.Define(nil, labels.FromStrings(labels.MetricName, "sizes"))
	require.NoError(t, err)
	for at := someDay + minute; at <= someDay+12*hour; at += minute {
		g.Next()
		h := g.H.Float.Copy()
		h.PositiveBuckets[0] += float64(at / minute % 2 * 1000) // 1,000 more observations in one of two buckets
		h.PositiveBuckets[1] += 1000 - float64(at/minute%2*1000)
		h.Count += 1000
		require.NoError(t, b.Histogram(ref, at, 0, nil, h))
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, store.SealAll(t.Context()))
	r := newRivals(t, NewQueryable(store.Store), nil)
	answers := func(mode string) (all []answer) {
		for _, text := range []string{"histogram_count(rate(sizes[3h]))", "histogram_sum(increase(sizes[3h]))",
			"histogram_avg(rate(sizes[3h]))"} {
			r.ctx = newRollupContext(t, mode)
			got, _ := r.answerOf(asked{text: text, start: someDay + 3*hour, end: someDay + 12*hour, step: time.Hour})
			all = append(all, got)
		}
		return all
	}
	want := answers("raw")
	for i, got := range answers("exact") {
		require.Len(t, got.rows, 1)
		require.Empty(t, want[i].differsBy(got, func(labels.Labels, int64) float64 { return 1e5 }))
	}
	(&rollupContest{t: t, store: store}).passes(time.UnixMilli(someDay + 7*day))
	for _, got := range answers("exact") {
		require.Equal(t, 1, shortfallsIn(got.notes), got.notes)
	}
}

// TestStatisticsOfHistogramsHaveNoInfoOfBounds checks that queries of the number of observations have no info about
// bounds, and don't depend on the order of addition, for histograms whose custom bounds or zero thresholds change. The
// reason is that Prometheus reads only the counts and sums of these histograms.
func TestStatisticsOfHistogramsHaveNoInfoOfBounds(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	store := openRolled(t, memory.New(), 5*24*time.Hour, 0)
	for name, kind := range map[string]string{
		"bounds": "custom buckets of changing bounds", "zeros": "histograms that overlap their zero buckets",
	} {
		g := bucketfntest.SeriesGenerator{Rand: rand.New(rand.NewPCG(seed, 35)), Kind: kind}
		b := store.NewBatch("default")
		ref, err := b.Define(nil, labels.FromStrings(labels.MetricName, name))
		require.NoError(t, err)
		for at := someDay + minute; at <= someDay+12*hour; at += minute {
			g.Next()
			require.NoError(t, b.Histogram(ref, at, 0, nil, g.H.Float.Copy()))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	require.NoError(t, store.SealAll(t.Context()))
	r := newRivals(t, NewQueryable(store.Store), nil)
	answers := func(mode string) (all []answer) {
		for _, text := range []string{"histogram_count(sum_over_time(bounds[3h]))", "histogram_count(rate(bounds[3h]))",
			"histogram_count(sum_over_time(zeros[3h]))", "histogram_count(rate(zeros[3h]))"} {
			r.ctx = newRollupContext(t, mode)
			got, _ := r.answerOf(asked{text: text, start: someDay + 3*hour, end: someDay + 12*hour, step: time.Hour})
			all = append(all, got)
		}
		return all
	}
	want := answers("raw")
	(&rollupContest{t: t, store: store}).passes(time.UnixMilli(someDay + 7*day))
	for i, got := range answers("exact") {
		require.Len(t, got.rows, 1)
		require.Empty(t, want[i].withoutHints(got).differsBy(got, func(labels.Labels, int64) float64 { return 1e5 }))
		require.Empty(t, got.notes)
	}
}
