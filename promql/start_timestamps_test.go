package promql

import (
	"errors"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/tenant"
)

// startedSeries returns series of one sample per minute with start timestamps.
func startedSeries(begin time.Time) []storage.ImportedSeries {
	r := rand.New(rand.NewPCG(44, 3))
	var steady, restarted, early, deltas, overlapping chunk.Samples
	var deltaHistograms chunk.Samples
	v, w, start, second := 0.0, 0.0, begin.UnixMilli(), begin.UnixMilli()
	for i := range 10 * 24 * 60 {
		at := begin.Add(time.Duration(i+1) * time.Minute).UnixMilli()
		if v += float64(r.IntN(100)); i%700 == 699 { // The counter falls.
			v, start = float64(r.IntN(5)), at-20_000
		}
		if w += 5; i%300 == 299 { // The start is later, but the value doesn't fall.
			w, second = w+1, at-30_000
		}
		steady.AppendFloat(at, begin.UnixMilli(), float64(i))
		restarted.AppendFloat(at, start, v)
		early.AppendFloat(at, second, w)
		between := at - 60_000
		if i%50 > 0 { // Otherwise there is a gap.
			deltas.AppendFloat(at, between, float64(r.IntN(50)))
		}
		count := uint64(1 + r.IntN(9))
		deltaHistograms.AppendHistogram(chunk.Histogram{T: at, ST: between, Int: &histogram.Histogram{
			Count: count, Sum: float64(count), PositiveSpans: []histogram.Span{{Length: 1}},
			PositiveBuckets: []int64{int64(count)},
		}})
		if i%90 == 45 {
			between -= 120_000
		}
		overlapping.AppendFloat(at, between, float64(i%7))
	}
	var all []storage.ImportedSeries
	for name, s := range map[string]*chunk.Samples{
		"steady_total": &steady, "restarted_total": &restarted, "early_total": &early, "deltas_total": &deltas,
		"dh":                &deltaHistograms,
		"overlapping_total": &overlapping,
	} {
		all = append(all, storage.ImportedSeries{Labels: labels.FromStrings("__name__", name), Samples: s})
	}
	return all
}

// TestStartTimestampsFromRollups checks that rates are computed from rollups even if series have start timestamps, while
// raw samples are kept and after they have expired.
func TestStartTimestampsFromRollups(t *testing.T) {
	a := newAgedStores(t, startedSeries)
	o := DefaultOptions()
	o.StartTimestamps = true
	planned := NewEngine(o)
	defer planned.Close()
	o.NoPlanner = true
	plain := NewEngine(o)
	defer plain.Close()
	ctx := tenant.NewContext(t.Context(), "default")
	queries := []string{
		"rate(steady_total[1h])", "rate(restarted_total[1h])", "increase(restarted_total[2h])",
		"resets(restarted_total[6h])", "resets(early_total[2h])",
		"increase(deltas_total[1h])", "rate(deltas_total[1d])", "sum(rate(deltas_total[2h]))",
		"histogram_count(rate(dh[1h]))",
		"histogram_sum(increase(dh[2h]))", "increase(early_total[6h])", "rate(overlapping_total[1h])",
	}
	for zone, from := range map[string]time.Time{"raw": a.now.Add(-20 * time.Hour),
		"5m": a.now.Add(-4 * 24 * time.Hour), "1h": a.now.Add(-9 * 24 * time.Hour)} {
		for _, query := range queries {
			from, to := from.Add(24*time.Hour), from.Add(29*time.Hour)
			if zone == "raw" {
				from, to = from.Add(-24*time.Hour), from.Add(-19*time.Hour)
			}
			want, notes := a.points(t, plain, a.whole, ctx, query, from, to, time.Hour)
			require.NotEmpty(t, want, query)
			check := func(way string, e *Engine, store *storage.Store) {
				report := &Report{}
				got, ownNotes := a.points(t, e, store, report.Into(ctx), query, from, to, time.Hour)
				require.Len(t, got, len(want), "%s, %s, %s", query, zone, way)
				for series, values := range want {
					require.Len(t, got[series], len(values), "%s of %s, %s, %s", query, series, zone, way)
					for at, v := range values {
						require.InEpsilon(t, v+1, got[series][at]+1, 1e-12, "%s of %s at %s, %s, %s", query, series,
							time.UnixMilli(at).UTC(), zone, way)
					}
				}
				require.Equal(t, warnsOfOverlaps(notes), warnsOfOverlaps(ownNotes), "%s, %s, %s", query, zone, way)
				if e == planned {
					require.Empty(t, without(ownNotes, annotations.StartTimeOverlapWarning), query)
					require.Equal(t, "1h", report.Resolution(), "%s, %s, %s", query, zone, way)
				}
			}
			check("all is kept", planned, a.whole)
			check("raw has expired", planned, a.aged)
			// The evaluator reads made samples. Their start timestamps show the same number of resets, but at other
			// values.
			switch query {
			case "increase(early_total[6h])", "rate(overlapping_total[1h])":
			default:
				check("the evaluator", plain, a.aged)
			}
		}
	}
}

func warnsOfOverlaps(notes []error) bool {
	return len(without(notes, annotations.StartTimeOverlapWarning)) < len(notes)
}

// without returns the notes that aren't of the given kind.
func without(notes []error, kind error) (rest []error) {
	for _, note := range notes {
		if !errors.Is(note, kind) {
			rest = append(rest, note)
		}
	}
	return rest
}

// TestStartTimestampOfBucketsIsBounded checks that, after raw samples have expired, start_timestamp is off by at most
// the difference between the first and the last start timestamp of a bucket, if start timestamps don't decrease.
func TestStartTimestampOfBucketsIsBounded(t *testing.T) {
	a := newAgedStores(t, startedSeries)
	o := DefaultOptions()
	o.Parser, o.StartTimestamps = allSyntax, true
	e := NewEngine(o)
	defer e.Close()
	ctx := tenant.NewContext(t.Context(), "default")
	different := 0
	for _, s := range startedSeries(a.now.Add(-10 * 24 * time.Hour)) {
		name := s.Labels.Get(labels.MetricName)
		if name == "overlapping_total" { // Its start timestamps decrease.
			continue
		}
		query := "start_timestamp(" + name + ")"
		for width, from := range map[time.Duration]time.Time{
			5 * time.Minute: a.now.Add(-4 * 24 * time.Hour), time.Hour: a.now.Add(-9 * 24 * time.Hour),
		} {
			from, to := from.Add(11*time.Second), from.Add(26*time.Hour)
			want, _ := a.points(t, e, a.whole, ctx, query, from, to, 7*time.Minute)
			got, _ := a.points(t, e, a.aged, ctx, query, from, to, 7*time.Minute)
			require.Len(t, want, 1, query)
			require.Len(t, got, 1, query)
			for series, values := range want {
				require.Len(t, got[series], len(values), query)
				for at, v := range values {
					require.InDelta(t, v, got[series][at], startSpread(s.Samples, at, width.Milliseconds()), "%s at %s",
						query, time.UnixMilli(at).UTC())
					if v != got[series][at] {
						different++
					}
				}
			}
		}
	}
	require.Positive(t, different)
}

// startSpread returns the difference, in seconds, between the first and the last start timestamp of a bucket: the
// bucket that contains the newest sample at or before a time.
func startSpread(s *chunk.Samples, at, width int64) float64 {
	var list chunk.Samples
	list.AppendAll(s)
	times, starts := list.T, list.ST
	if len(list.H) > 0 {
		times, starts = nil, nil
		for _, h := range list.H {
			times, starts = append(times, h.T), append(starts, h.ST)
		}
	}
	i := sort.Search(len(times), func(i int) bool { return times[i] > at }) - 1
	end := bucketfn.CeilTo(times[i], width)
	first := sort.Search(len(times), func(i int) bool { return times[i] > end-width })
	last := sort.Search(len(times), func(i int) bool { return times[i] > end }) - 1
	return float64(starts[last]-starts[first]) / 1000
}
