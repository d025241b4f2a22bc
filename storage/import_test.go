package storage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestImport imports a week of series across slots and days, and imports it again in different pieces. The first import
// must store all samples without using the head, and the second one must store nothing.
func TestImport(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 4 })
	base := ts.now.AddDate(0, 0, -7).UnixMilli()
	want := map[string][]sample{}
	series := func(i, from, to int) ImportedSeries {
		ls := labels.FromStrings(
			labels.MetricName, fmt.Sprintf("metric_%d", i%3), "instance", fmt.Sprintf("host-%d", i),
		)
		var samples chunk.Samples
		for j := from; j < to; j++ {
			samples.AppendFloat(base+int64(j)*300_000, 0, float64(i*j))
		}
		return ImportedSeries{Labels: ls, Samples: &samples}
	}
	var list []ImportedSeries
	for i := range 20 {
		list = append(list, series(i, 0, 2000))
		for j, at := range list[i].Samples.T {
			want[list[i].Labels.String()] = append(want[list[i].Labels.String()], sample{at, list[i].Samples.V[j]})
		}
	}
	stats, err := ts.Import(t.Context(), "default", list)
	require.NoError(t, err)
	require.Equal(t, 20*2000, stats.Samples)
	require.Equal(t, want, ts.all("default"))
	chunks := ts.check()
	require.Equal(t, 20*2000, chunks.Samples)
	require.Zero(t, ts.head.SeriesCount(), "the head must not grow")
	for from := 0; from < 2000; from += 700 {
		var list []ImportedSeries
		for i := range 20 {
			list = append(list, series(i, from, min(from+700, 2000)))
		}
		stats, err := ts.Import(t.Context(), "default", list)
		require.NoError(t, err)
		require.Zero(t, stats.Samples)
	}
	require.Equal(t, chunks.Chunks, ts.check().Chunks)
	require.Equal(t, want, ts.all("default"))
}

// pastOf returns random series with samples of the given number of days until now: floats, special values, stale
// markers, start timestamps and native histograms.
func pastOf(r *rand.Rand, now time.Time, days int) []ImportedSeries {
	var list []ImportedSeries
	from := now.AddDate(0, 0, -days).UnixMilli()
	for i := range 12 {
		s := ImportedSeries{
			labels.FromStrings(labels.MetricName, fmt.Sprintf("metric_%d", i%4), "instance", fmt.Sprint("h", i)),
			&chunk.Samples{},
		}
		step := int64(100_000 + r.IntN(900_000))
		v := 0.0
		for t := from + r.Int64N(step); t <= now.UnixMilli(); t += step {
			v += float64(r.IntN(5))
			if r.IntN(200) == 0 {
				v = 0
			}
			switch {
			case i == 11:
				h, err := chunk.CanonicalHistogram(chunk.Histogram{T: t, Int: tsdbutil.GenerateTestHistogram(int64(v))})
				if err != nil {
					panic(err)
				}
				s.Samples.AppendHistogram(h)
			case r.IntN(100) == 0:
				s.Samples.AppendFloat(t, 0, []float64{
					math.Float64frombits(value.StaleNaN), math.NaN(), math.Inf(1), math.Copysign(0, -1),
				}[r.IntN(4)])
			case r.IntN(500) == 0: // The series stops for some time.
				t += 40 * step
			default:
				s.Samples.AppendFloat(t, int64(i%2)*from, v)
			}
		}
		list = append(list, s)
	}
	return list
}

// copyOf returns a copy of samples, because an import may retain the samples that it gets.
func copyOf(s *chunk.Samples) *chunk.Samples {
	c := &chunk.Samples{}
	c.AppendAll(s)
	return c
}

// cut returns overlapping pieces of a history in random order.
func cut(r *rand.Rand, all []ImportedSeries) (pieces [][]ImportedSeries) {
	for from := 0; from < len(all); {
		to := min(len(all), from+1+r.IntN(len(all)))
		first, last := format.TimeBounds(all[from].Samples)
		for t := first - format.DayMS; t <= last; {
			until := t + 1 + r.Int64N(2*format.DayMS)
			var piece []ImportedSeries
			for _, s := range all[from:to] {
				c := copyOf(s.Samples)
				c.Clip(t-r.Int64N(3*format.HourMS), until)
				piece = append(piece, ImportedSeries{s.Labels, c})
			}
			pieces = append(pieces, piece)
			t = until + 1
		}
		// The last piece contains the samples after the last sample of the first series.
		var rest []ImportedSeries
		for _, s := range all[from:to] {
			c := copyOf(s.Samples)
			c.Clip(last-format.DayMS, format.MaxTime)
			rest = append(rest, ImportedSeries{s.Labels, c})
		}
		pieces = append(pieces, rest)
		from = to
	}
	r.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	return pieces
}

// commit writes a history with batches instead of importing it.
func (ts *testStore) commit(list []ImportedSeries) {
	ts.t.Helper()
	b := ts.NewBatch("default")
	for _, s := range list {
		ref, err := b.Define(nil, s.Labels)
		require.NoError(ts.t, err)
		for i, t := range s.Samples.T {
			st := int64(0)
			if len(s.Samples.ST) > 0 {
				st = s.Samples.ST[i]
			}
			require.NoError(ts.t, b.Float(ref, t, st, s.Samples.V[i]))
		}
		for _, h := range s.Samples.H {
			require.NoError(ts.t, b.Histogram(ref, h.T, h.ST, h.Int.Copy(), nil))
		}
	}
	require.NoError(ts.t, b.Commit(ts.t.Context()))
}

// answers returns the samples and buckets of all series, as text.
func (ts *testStore) answers() map[string]string {
	ts.t.Helper()
	got := map[string]string{}
	q := query.Query{
		Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Columns: rollup.AllColumns,
		Warn: func(err error) { require.NoError(ts.t, err) },
	}
	for res := range rollup.Resolution(resolutions) {
		q.Resolution = res
		found, err := ts.Select(ts.t.Context(), q)
		require.NoError(ts.t, err)
		for _, s := range found {
			name := fmt.Sprint(res, s.Labels)
			if res == rollup.Raw {
				var samples chunk.Samples
				require.NoError(ts.t, s.Samples(&samples))
				got[name] = fmt.Sprintf(
					"%x %x %x", samples.T, samples.ST, bitsOf(samples.V),
				) + fmt.Sprint(len(samples.H))
				for _, h := range samples.H {
					got[name] = got[name] + string(chunk.AppendHistogramBytes(nil, h))
				}
				continue
			}
			var b rollup.Buckets
			require.NoError(ts.t, s.Buckets(&b, &query.BucketBuffers{}))
			if b.Len() > 0 {
				got[name] = fmt.Sprint(b.Start, b.End, b.Flags, b.Count, b.FirstT, b.LastT, b.FirstST, b.LastST,
					b.Resets, b.Changes, b.TimeSum, b.TimeSquares, bitsOf(b.First), bitsOf(b.Last), bitsOf(b.Min),
					bitsOf(b.Max), bitsOf(b.Sum), bitsOf(b.SumLow), bitsOf(b.Correction))
				for _, m := range b.Moment { // A moment that is combined from parts is rounded more than once.
					got[name] += fmt.Sprintf(" %.6g", m)
				}
				for _, h := range b.Histograms {
					if h != nil {
						got[name] = fmt.Sprint(got[name], h.First, h.Last, h.Correction)
					}
				}
			}
		}
	}
	return got
}

// requireAnswers requires two results of answers to be equal, and reports the first difference.
func requireAnswers(t testing.TB, want, got map[string]string) {
	t.Helper()
	for name, text := range want {
		other := got[name]
		i := 0
		for i < min(len(text), len(other)) && text[i] == other[i] {
			i++
		}
		if i < max(len(text), len(other)) {
			from := max(0, i-60)
			require.Failf(t, "other answers",
				"%s: want …%.120q, got …%.120q", name, text[from:], other[min(from, len(other)):])
		}
	}
	require.Len(t, got, len(want))
}

func bitsOf(v []float64) []uint64 {
	bits := make([]uint64, len(v))
	for i, x := range v {
		bits[i] = math.Float64bits(x)
	}
	return bits
}

func samplesOf(list []ImportedSeries) (n int) {
	for _, s := range list {
		n += s.Samples.Len()
	}
	return n
}

// TestImportIsAsWrites imports overlapping pieces of a history into an empty store, and into a store that contains
// sealed and unsealed parts of the history. The answers must equal the answers of a store to which the history was
// written, and no sample may be sealed twice.
func TestImportIsAsWrites(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	open := func() *testStore { return openTestStore(t, func(o *Options) { o.Partitions = 3 }) }
	usual, empty, partly := open(), open(), open()
	all := pastOf(r, usual.now, 3)
	usual.commit(all)
	require.NoError(t, usual.SealAll(t.Context()))
	want := usual.answers()
	require.NotEmpty(t, want)

	pieces := cut(r, all)
	partly.commit(pieces[0])
	require.NoError(t, partly.SealAll(t.Context()))
	partly.commit(pieces[1])
	for _, ts := range []*testStore{empty, partly} {
		for _, piece := range cut(r, all) {
			stats, err := ts.Import(t.Context(), "default", piece)
			require.NoError(t, err)
			require.Equal(t, 0, stats.Expired+stats.Ahead+stats.Refused+stats.RollupsOnly)
		}
		require.NoError(t, ts.SealAll(t.Context()))
		requireAnswers(t, want, ts.answers())
		require.Equal(t, samplesOf(all), ts.check().Samples)
	}
}

// TestImportWithFaults repeats imports on an engine whose operations fail, some of them after they were applied. Each
// import cuts the history into different pieces. After an import without faults, the answers must equal the answers of
// a store to which the history was written.
func TestImportWithFaults(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	r, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	among := 0
	ts, _ := openFaultyStore(t, func(faultengine.Op) faultengine.Action {
		if among == 0 || faults.IntN(among) > 0 {
			return faultengine.Pass()
		}
		if faults.IntN(2) == 0 {
			return faultengine.Fail(nil)
		}
		return faultengine.Lose(nil)
	}, nil)
	all := pastOf(r, ts.now, 3)
	failed := 0
	for _, among = range []int{40, 200, 1000} {
		for _, piece := range cut(r, all) {
			if _, err := ts.Import(t.Context(), "default", piece); err != nil {
				failed++
			}
		}
	}
	among = 0
	require.Positive(t, failed)
	for _, piece := range cut(r, all) {
		_, err := ts.Import(t.Context(), "default", piece)
		require.NoError(t, err)
	}
	require.Equal(t, samplesOf(all), ts.check().Samples)
	usual := openTestStore(t, nil)
	usual.commit(all)
	require.NoError(t, usual.SealAll(t.Context()))
	requireAnswers(t, usual.answers(), ts.answers())
}

// TestImportOfOldHistory imports samples of all ages. Samples past the raw retention must be added only to rollups, and
// samples past the 5m retention only to 1h rollups. Samples that are past all retentions, in the future, or invalid
// must be rejected.
func TestImportOfOldHistory(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 2*day, 40*day, 400*day })
	ls := labels.FromStrings(labels.MetricName, "up", "job", "a")
	at := func(ago time.Duration) int64 { return ts.now.Add(-ago).UnixMilli() }
	make := func() []ImportedSeries {
		s := &chunk.Samples{}
		s.AppendFloat(at(500*day), 0, 1)
		s.AppendFloat(at(300*day), 0, 1)
		for i := range 48 {
			s.AppendFloat(at(20*day)+int64(i)*1_800_000, 0, float64(i))
		}
		s.AppendFloat(at(day), 0, 5)
		s.AppendFloat(at(-time.Hour), 0, 6)
		bad := &chunk.Samples{}
		bad.AppendFloat(at(day), 0, 5)
		return []ImportedSeries{{ls, s}, {labels.FromStrings("job", "nameless"), bad}}
	}
	for before := range 2 {
		stats, err := ts.Import(t.Context(), "default", make())
		require.NoError(t, err)
		require.Equal(t, []int{1, 49, 1 - before, 1, 1, 1}, []int{
			stats.Samples + stats.Known, stats.RollupsOnly, stats.HoursOnly, stats.Expired, stats.Ahead, stats.Refused,
		})
		require.Len(t, stats.Refusals, 1)
		require.ErrorContains(t, stats.Refusals[0].Err, ReasonMissingMetricName)
		found, err := ts.Select(t.Context(), query.Query{
			Tenant: "default", MinT: at(30 * day), MaxT: at(3 * day), Resolution: rollup.OneHour,
			Columns: rollup.AllColumns,
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		var b rollup.Buckets
		require.NoError(t, found[0].Buckets(&b, &query.BucketBuffers{}))
		sum := 0.0
		for _, x := range b.Sum {
			sum += x
		}
		require.Equal(t, 47.0*48/2, sum)
	}
}

// TestImportBesideOlderUnsealedSamples imports history past a retention that was set by mistake. Older samples that
// were accepted under the correct retention aren't sealed yet. Once the correct retention is set again, queries must
// return these samples.
func TestImportBesideOlderUnsealedSamples(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.seams.still = 365*day, true })
	list := every(ts.now.Add(-140*day), time.Minute, 4)
	ts.write("default", jobLabels("written"), list...)
	ts.opts.Retention, ts.opts.Retention5m, ts.opts.Retention1h = 10*day, 300*day, 300*day
	ts.reopen()
	ts.importJob("imported", every(ts.now.Add(-53*day), time.Minute, 4)...)
	require.Equal(t, 4, ts.importJob("expired", every(ts.now.Add(-350*day), time.Minute, 4)...).Expired)
	for _, kept := range []time.Duration{10 * day, 365 * day} {
		ts.opts.Retention, ts.opts.Retention5m, ts.opts.Retention1h = kept, max(kept, 300*day), max(kept, 300*day)
		ts.reopen()
		_, err := ts.Expire(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	require.Equal(t, list, ts.all("default")[jobLabels("written").String()])
}

// TestImportAfterDelete imports deleted samples again. They must become visible, and be hidden again by a delete after
// the import.
func TestImportAfterDelete(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Partitions = 2 })
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	all := pastOf(r, ts.now, 2)
	pieces := func() {
		for _, piece := range cut(r, all) {
			_, err := ts.Import(t.Context(), "default", piece)
			require.NoError(t, err)
		}
	}
	pieces()
	want := ts.answers()
	deleteAll := func() {
		every := labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "metric_.")
		require.NoError(
			t, ts.Delete(t.Context(), "default", ts.now.AddDate(0, -1, 0).UnixMilli(), ts.now.UnixMilli(), every),
		)
	}
	deleteAll()
	require.Empty(t, ts.all("default"))
	pieces()
	require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
	requireAnswers(t, want, ts.answers())
	deleteAll()
	require.Empty(t, ts.all("default"))
	require.NoError(t, ts.SealAll(t.Context()))
	require.Empty(t, ts.all("default"))
}

// TestImportOfOldHistoryInParts imports samples of one bucket that are past the raw retention, in multiple calls.
// Samples older or newer than the samples in the bucket must be added. Samples between them must be skipped and
// counted.
func TestImportOfOldHistoryInParts(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 2*day, 40*day, 400*day })
	first := ts.now.Add(-20 * day).Truncate(time.Hour).UnixMilli()
	ls := labels.FromStrings(labels.MetricName, "up", "job", "a")
	bring := func(seconds ...int64) ImportStats {
		t.Helper()
		s := &chunk.Samples{}
		for _, at := range seconds {
			s.AppendFloat(first+at*1000, 0, float64(at))
		}
		stats, err := ts.Import(t.Context(), "default", []ImportedSeries{{ls, s}})
		require.NoError(t, err)
		require.Equal(t, len(seconds), stats.RollupsOnly)
		return stats
	}
	require.Zero(t, bring(60, 90).LeftOut)
	require.Zero(t, bring(120, 150, 310).LeftOut)
	require.Zero(t, bring(30).LeftOut)
	require.Equal(t, 5, bring(30, 60, 90, 120, 150, 610).LeftOut, "the same again")
	require.Equal(t, 2, bring(70, 80).LeftOut, "between the others")

	for res, want := range map[rollup.Resolution][]uint32{rollup.FiveMinutes: {5, 1, 1}, rollup.OneHour: {7}} {
		found, err := ts.Select(t.Context(), query.Query{
			Tenant: "default", MinT: first, MaxT: first + 3_600_000, Resolution: res, Columns: rollup.AllColumns,
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		var b rollup.Buckets
		require.NoError(t, found[0].Buckets(&b, &query.BucketBuffers{}))
		require.Equal(t, want, b.Count, res)
		require.Equal(t, []float64{30, 150}, []float64{b.First[0], b.Min[0] + 120})
	}
}

// TestSamplesOfAnImportedSlotArentLate seals a slot for the first time after an import wrote to it, and seals it again.
// Only the samples of the second seal may be counted as late.
func TestSamplesOfAnImportedSlotArentLate(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	at := ts.now.Add(-48 * time.Hour)
	var samples chunk.Samples
	samples.AppendFloat(at.UnixMilli(), 0, 1)
	_, err := ts.Import(t.Context(), "default", []ImportedSeries{
		{labels.FromStrings(labels.MetricName, "up"), &samples},
	})
	require.NoError(t, err)
	for i, repaired := range []int{0, 1} {
		ts.write("default", labels.FromStrings(labels.MetricName, "up"), sample{at.UnixMilli() + int64(i) + 1, 2})
		stats, err := ts.Seal(t.Context(), Work{Slot: ts.period.SlotOf(at.UnixMilli() + int64(i) + 1)})
		require.NoError(t, err)
		require.Equal(t, repaired, stats.Repaired)
	}
}
