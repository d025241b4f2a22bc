package promql

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// These tests reproduce faults that the generated queries of TestRollupsAnswerAsRawSamplesDo found, in the smallest
// form.

// TestWindowsThatBeginInsideABucketAreExact checks that an instant query whose window starts inside a bucket excludes
// the samples before the window.
func TestWindowsThatBeginInsideABucketAreExact(t *testing.T) {
	store, now := expiringStore(t)
	r := newRivals(t, NewQueryable(store), nil)
	end := now.UnixMilli() - 7*minute - 3
	for _, text := range []string{"count_over_time(requests_total[15h])", "increase(requests_total[20h])",
		"sum_over_time(requests_total[15h])"} {
		a := asked{text: text, start: end}
		r.ctx = newRollupContext(t, "exact")
		got, stats := r.answerOf(a)
		require.Equal(t, "1h", stats[0].Segments[0].Resolution, text)
		r.ctx = newRollupContext(t, "raw")
		want, _ := r.answerOf(a)
		require.Empty(t, want.differs(got, 1e-12), text)
	}
}

// TestOneInfoAQuery checks that a query has one info about missing samples, for any number of fragments and other
// selectors.
func TestOneInfoAQuery(t *testing.T) {
	store, now := expiringStore(t)
	r := newRivals(t, NewQueryable(store), nil)
	for _, text := range []string{
		"rate(requests_total[7m]) + deriv(requests_total[9m])",
		"timestamp(requests_total) + rate(requests_total[7m])",
		"limitk(1, requests_total) + deriv(requests_total[7m])",
	} {
		got, _ := r.answerOf(asked{text: text, start: now.Add(-30*time.Hour).UnixMilli() + 1234})
		require.Empty(t, got.err)
		require.Len(t, got.rows, 1, text)
		require.Equal(t, 1, shortfallsIn(got.notes), "%s: %q", text, got.notes)
	}
}

// TestFixedWindowsWhereRawIsGone checks that a function of a fixed window is computed once per step if it also depends
// on the evaluation time.
func TestFixedWindowsWhereRawIsGone(t *testing.T) {
	store, now := expiringStore(t)
	r := newRivals(t, NewQueryable(store), nil)
	from := now.Add(-30 * time.Hour)
	got, _ := r.answerOf(asked{
		text:  "predict_linear(requests_total[2h] @ start(), 60)",
		start: from.UnixMilli(), end: from.Add(3 * time.Hour).UnixMilli(), step: time.Hour,
	})
	require.Empty(t, got.err)
	require.Equal(t, 1, shortfallsIn(got.notes), got.notes)
	require.Len(t, got.rows, 1)
	require.Len(t, got.rows[0].Floats, 4)
	require.InDelta(t, 240, got.rows[0].Floats[1].F-got.rows[0].Floats[0].F, 1, "a sample every 15 s, one more each")
	require.True(t, strings.Contains(got.notes[0], "reconstructed from buckets"), got.notes)
}

// TestRollupsOfASealThatWasCutShort checks that a slot is answered from samples if its seal was interrupted after its
// rollups were written and before its commit record. The chunk of the day, which other slots need, must not answer for
// this slot.
func TestRollupsOfASealThatWasCutShort(t *testing.T) {
	broken := false
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if broken && op.Kind == faultengine.Write && op.Table == engine.Sealed {
			return faultengine.Fail(errors.New("the power is off"))
		}
		return faultengine.Pass()
	})
	store := openRolled(t, eng, 0, 0)
	ls := labels.FromStrings(labels.MetricName, "requests_total")
	write := func(at ...int64) {
		for _, at := range at {
			storagetest.Write(t, store.Store, "default", ls, storagetest.FloatSample{T: at, V: float64(at - someDay)})
		}
	}
	for at := someDay + minute; at <= someDay+22*hour; at += minute {
		write(at)
	}
	require.NoError(t, store.SealAll(t.Context()))
	for at := someDay + 22*hour + minute; at <= someDay+day; at += minute {
		write(at)
	}
	broken = true
	require.Error(t, store.SealAll(t.Context()))
	write(someDay + 23*hour + 1)
	r := newRivals(t, NewQueryable(store.Store), nil)
	for _, end := range []int64{0, 90*second + 1} {
		for _, text := range []string{"count_over_time(requests_total[1d])", "sum_over_time(requests_total[23h])"} {
			a := asked{text: text, start: someDay + day - end}
			r.ctx = newRollupContext(t, "exact")
			got, stats := r.answerOf(a)
			require.Equal(t, "1h", stats[0].Segments[0].Resolution, text)
			r.ctx = newRollupContext(t, "raw")
			want, _ := r.answerOf(a)
			require.Empty(t, want.differs(got, 1e-12), a)
		}
	}
}

// TestSamplesOfHistogramsCutWhereTheyAreKept checks that a bucket that contains the end of a window is split by raw
// samples where these are kept. If samples were made from the whole bucket, samples from after the end could get times
// before the end.
func TestSamplesOfHistogramsCutWhereTheyAreKept(t *testing.T) {
	store := openRolled(t, memory.New(), 5*24*time.Hour, 0)
	b := store.NewBatch("default")
	s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "latency"))
	require.NoError(t, err)
	from, to := someDay+hour, someDay+7*hour+3*minute
	want := 0.0
	for at := someDay + minute; at <= someDay+8*hour; at += minute {
		count := float64((at - someDay) / minute)
		if at > to { // Earlier steps must not read it.
			count += 1000
		}
		if at > from && at <= to {
			want += count
		}
		require.NoError(t, b.Histogram(s, at, 0, nil, &histogram.FloatHistogram{
			Count: count, Sum: count, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []float64{count},
		}))
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, store.SealAll(t.Context()))
	(&rollupContest{t: t, store: store}).passes(time.UnixMilli(someDay + 5*day + 4*hour))
	r := newRivals(t, NewQueryable(store.Store), nil)
	r.ctx = newRollupContext(t, "exact")
	got, stats := r.answerOf(asked{text: "sum_over_time(latency[6h3m])", start: to})
	require.Empty(t, got.err)
	require.Equal(t, "5m approximate", stats[0].Segments[0].String())
	require.Equal(t, 1, shortfallsIn(got.notes), got.notes)
	require.Len(t, got.rows, 1)
	require.InDelta(t, want, got.rows[0].Histograms[0].H.Count, 1e-6)
}

// TestExpiredIncreasesOfOverlappingGauges checks the increase of a gauge histogram that overlaps its zero bucket, over
// windows whose first raw samples have expired. Buckets can't answer the query, so it has an info and the increase of
// samples made from the buckets. The buckets of slots without commit records are computed from raw samples, so their
// sums differ from the sums of 5m buckets.
func TestExpiredIncreasesOfOverlappingGauges(t *testing.T) {
	t.Parallel()
	s := &rolledSeries{labels: labels.FromStrings(labels.MetricName, "zeros")}
	(&roller{r: rand.New(rand.NewPCG(44, 1))}).fill(s, 2*minute, "gauge histograms that overlap their zero buckets", 1)
	all := []*rolledSeries{s}
	eng := newMarkless(memory.New())
	store := rolled(t, eng, all, 5*24*time.Hour, 0)
	require.NotZero(t, eng.lost)
	require.NoError(t, store.SealAll(t.Context()))
	(&rollupContest{t: t, store: store}).passes(time.UnixMilli(rolledFrom + 5*day + 37*hour))
	d := newRollupDuel(t, store, unrolled(t, all), truthsOf(all), true)
	for end := unmarkedFrom - 2*hour; end <= unmarkedTo+2*hour; end += 2 * hour {
		a := asked{text: "increase(zeros[2d])", start: end}
		got, _, err := a.ask(d.in("1h"), d.planned, d.subject)
		require.NoError(t, err)
		require.Equal(t, 1, shortfallsIn(got.notes), got.notes)
		why, ok := d.difference(a, "1h")
		require.True(t, ok)
		require.Empty(t, why)
	}
	require.Equal(t, 6, d.outcomes["values from made samples"])
}
