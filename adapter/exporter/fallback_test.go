package exporter

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// For times whose samples have expired, an export computes the same number of samples from rollups, in text and in
// blocks. With LeaveRollups it omits these times.
func TestExportOfExpiredSamples(t *testing.T) {
	const day = 24 * time.Hour
	var samples chunk.Samples
	for i := range 10 * 24 * 60 {
		samples.AppendFloat(nowMS-10*dayMS+int64(i+1)*60_000, 0, float64(3*i))
	}
	clock := testNow.Add(-10 * day)
	s := storagetest.Open(t, memory.New(), func(o *storage.Options) {
		o.Retention, o.Retention5m, o.Now = 2*day, 6*day, func() time.Time { return clock }
	})
	clock = testNow
	_, err := s.Import(t.Context(), "default", []storage.ImportedSeries{
		{Labels: labels.FromStrings("__name__", "c"), Samples: &samples},
	})
	require.NoError(t, err)

	var out bytes.Buffer
	stats, err := Text(t.Context(), s, OpenMetrics, everything(), &out)
	require.NoError(t, err)
	require.Equal(t, int64(10*24*60), stats.Samples)
	require.InDelta(t, 8*24*60, stats.Made, 24*60, "rollups are left of at most eight days")
	got := held{}
	inOpenMetrics(t, out.Bytes(), got)
	require.Len(t, got[`{__name__="c"}`], 10*24*60)
	want := held{}
	for i, at := range samples.T { // a counter that increases evenly is restored exactly
		want.float(labels.FromStrings("__name__", "c"), at, 0, samples.V[i])
	}
	same(t, want, got)

	dir := t.TempDir() + "/blocks"
	_, err = Blocks(t.Context(), s, everything(), newFolder(t, dir))
	require.NoError(t, err)
	same(t, want, inBlocks(t, dir))

	left := everything()
	left.LeaveRollups = true
	out.Reset()
	stats, err = Text(t.Context(), s, OpenMetrics, left, &out)
	require.NoError(t, err)
	require.Zero(t, stats.Made)
	require.Less(t, stats.Samples, int64(3*24*60+1))
	left.MaxT = nowMS - 4*dayMS
	_, err = Text(t.Context(), s, OpenMetrics, left, &out)
	require.ErrorIs(t, err, ErrNothing)
}

// TestExportOfHistogramsThatRollupsLack exports expired native histograms that were too large for rollups. An export
// without any other samples fails with the reason; otherwise the export counts the buckets.
func TestExportOfHistogramsThatRollupsLack(t *testing.T) {
	const day = 24 * time.Hour
	clock := testNow.Add(-10 * day)
	s := storagetest.Open(t, memory.New(), func(o *storage.Options) {
		o.Retention, o.Retention5m, o.Now = 2*day, 0, func() time.Time { return clock }
	})
	clock = testNow.Add(20 * day)
	at := nowMS - 5*dayMS
	var large, float chunk.Samples
	for i := range int64(48) {
		h := &histogram.FloatHistogram{
			Count: 1, PositiveSpans: []histogram.Span{{Length: 4000}}, PositiveBuckets: make([]float64, 4000),
		}
		for k := range h.PositiveBuckets {
			h.PositiveBuckets[k] = 1/float64(k+int(i)+3) + 0.1
			h.Count += h.PositiveBuckets[k]
		}
		large.AppendHistogram(chunk.Histogram{T: at + i*150_000 + 1, Float: h})
	}
	_, err := s.Import(t.Context(), "default", []storage.ImportedSeries{
		{Labels: labels.FromStrings("__name__", "large"), Samples: &large},
	})
	require.NoError(t, err)
	_, err = Blocks(t.Context(), s, everything(), newFolder(t, t.TempDir()+"/blocks"))
	require.ErrorIs(t, err, ErrNothing)
	require.ErrorContains(t, err, "24 rollup buckets don't contain the native histograms")
	float.AppendFloat(at, 0, 1)
	_, err = s.Import(t.Context(), "default", []storage.ImportedSeries{
		{Labels: labels.FromStrings("__name__", "float"), Samples: &float},
	})
	require.NoError(t, err)
	stats, err := Blocks(t.Context(), s, everything(), newFolder(t, t.TempDir()+"/blocks"))
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Samples)
	require.EqualValues(t, 24, stats.LeftOut.Buckets)
}

// TestExportBesideAGap exports around a gap: the rows of two days have expired, and retention was raised later. Samples
// before and after these days are exported unchanged, even if they are in a block that overlaps the gap.
func TestExportBesideAGap(t *testing.T) {
	const day = 24 * time.Hour
	const midnight = nowMS / dayMS * dayMS
	clock := time.UnixMilli(midnight - 30*dayMS + 1)
	eng := memory.NewExpiring(func() time.Time { return clock })
	open := func(raw time.Duration) *storage.Store {
		return storagetest.Start(t, eng, func(o *storage.Options) {
			o.Retention, o.Now = raw, func() time.Time { return clock }
			o.Elapsed = func() time.Duration { return time.Duration(clock.UnixNano()) }
		})
	}
	series := labels.FromStrings("__name__", "c")
	each := func(ago int64, f func(at int64)) { // the minutes of the day that started the given number of days ago
		for at := midnight - ago*dayMS + 60_000; at <= midnight-(ago-1)*dayMS; at += 60_000 {
			f(at)
		}
	}
	bring := func(s *storage.Store, ago int64) {
		var samples chunk.Samples
		each(ago, func(at int64) { samples.AppendFloat(at, 0, float64(at/1000)) })
		_, err := s.Import(t.Context(), "default", []storage.ImportedSeries{{Labels: series, Samples: &samples}})
		require.NoError(t, err)
	}
	s := open(2 * day)
	bring(s, 32)
	bring(s, 31)
	_, err := s.Expire(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close())

	s = open(365 * day)
	defer func() { require.NoError(t, s.Close()) }()
	bring(s, 34)
	bring(s, 33)
	for clock.UnixMilli() < nowMS {
		clock = clock.Add(day / 2)
		_, err := s.Expire(t.Context())
		require.NoError(t, err)
	}
	// Retention was raised 30 days ago, within a window. Rows of that window count as written before the change, so the
	// test writes none.
	bring(s, 29)
	bring(s, 28)

	all, raw := held{}, held{} // of all days, and of days with rows
	for _, ago := range []int64{34, 33, 32, 31, 29, 28} {
		each(ago, func(at int64) {
			all.float(series, at, 0, float64(at/1000))
			if ago != 32 && ago != 31 {
				raw.float(series, at, 0, float64(at/1000))
			}
		})
	}
	for name, export := range map[string]func(o Options) (held, Stats){
		"blocks": func(o Options) (held, Stats) {
			dir := t.TempDir() + "/blocks"
			stats, err := Blocks(t.Context(), s, o, newFolder(t, dir))
			require.NoError(t, err)
			return inBlocks(t, dir), stats
		},
		"text": func(o Options) (held, Stats) {
			var out bytes.Buffer
			stats, err := Text(t.Context(), s, OpenMetrics, o, &out)
			require.NoError(t, err)
			got := held{}
			inOpenMetrics(t, out.Bytes(), got)
			return got, stats
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := everything()
			got, stats := export(o)
			same(t, all, got)
			require.Equal(t, int64(2*24*60), stats.Made, "of the days whose rows have vanished, and of no others")
			o.LeaveRollups = true
			got, stats = export(o)
			same(t, raw, got)
			require.Zero(t, stats.Made)
		})
	}
}

// TestExportOfAggregates exports buckets that were imported from downsampled blocks. The samples computed from them are
// counted. The warning about estimates is passed on once and doesn't count as damage.
func TestExportOfAggregates(t *testing.T) {
	const day, width, perBucket, buckets = 24 * time.Hour, 300_000, 10, 3 * 288
	s := storagetest.Open(t, memory.New(), storagetest.FixedClock(testNow), func(o *storage.Options) {
		o.Retention, o.Retention5m = 2*day, 0
	})
	var list []storage.ImportedBuckets
	for _, name := range []string{"a", "b_total"} {
		var b rollup.Buckets
		for i := range int64(buckets) {
			end := midnight - 20*dayMS + (i+1)*width
			b.AppendAggregate(rollup.Aggregate{
				End: end, Count: perBucket, Sum: 30, Min: 1, Max: 9, First: 3, Last: 3, FirstT: end - width + 15_000,
				LastT: end - 15_000,
			}, width)
		}
		list = append(list, storage.ImportedBuckets{
			Labels: labels.FromStrings("__name__", name), Resolution: rollup.FiveMinutes, Buckets: &b,
		})
	}
	_, err := s.ImportBuckets(t.Context(), "default", list)
	require.NoError(t, err)
	var warned []error
	opts := everything()
	opts.Warn = func(err error) { warned = append(warned, err) }
	var out bytes.Buffer
	stats, err := Text(t.Context(), s, OpenMetrics, opts, &out)
	require.NoError(t, err)
	require.EqualValues(t, 2*buckets*perBucket, stats.Samples)
	require.Equal(t, stats.Samples, stats.Made)
	require.Equal(t, stats.Samples, stats.Estimated)
	require.Zero(t, stats.Corrupt)
	require.NoError(t, stats.Missing)
	require.Len(t, warned, 1)
	require.ErrorContains(t, warned[0], "which are estimates")
}

// TestExportWarnings checks that damage, missing samples and other warnings are distinguished.
func TestExportWarnings(t *testing.T) {
	var passed int
	r := newRun(nil, Options{Warn: func(error) { passed++ }})
	corrupt := &damage.CorruptRowError{Table: engine.Raw, Err: engine.ErrCorrupt}
	for _, err := range []error{
		corrupt, corrupt, query.ErrLateUnsealed, query.ErrLateUnsealed, errors.New("a note"), errors.New("a note"),
	} {
		r.warn(err)
	}
	require.Equal(t, 2, r.stats.Corrupt)
	require.ErrorIs(t, r.stats.Missing, query.ErrLateUnsealed)
	require.Equal(t, 3, passed)
}

// Samples from rollups that the format leaves out, stale markers and native histograms, aren't counted as exported.
func TestMadeSamplesAreWritten(t *testing.T) {
	const day = 24 * time.Hour
	clock := testNow.Add(-10 * day)
	s := storagetest.Open(t, memory.New(), func(o *storage.Options) {
		o.Retention, o.Retention5m, o.Now = 2*day, 20*day, func() time.Time { return clock }
	})
	clock = testNow
	var floats, histograms chunk.Samples
	for i := range int64(600) {
		at, v := nowMS-9*dayMS+(i+1)*60_000, float64(i)
		if i%10 == 9 {
			v = math.Float64frombits(value.StaleNaN)
		}
		floats.AppendFloat(at, 0, v)
		histograms.AppendHistogram(chunk.Histogram{T: at, Float: tsdbutil.GenerateTestFloatHistogram(i)})
	}
	_, err := s.Import(t.Context(), "default", []storage.ImportedSeries{
		{Labels: labels.FromStrings("__name__", "c"), Samples: &floats},
		{Labels: labels.FromStrings("__name__", "h"), Samples: &histograms},
	})
	require.NoError(t, err)
	stats, err := Text(t.Context(), s, OpenMetrics, everything(), io.Discard)
	require.NoError(t, err)
	require.Positive(t, stats.LeftOut.Stale)
	require.EqualValues(t, 600, stats.LeftOut.Histograms)
	require.Equal(t, stats.Samples, stats.Made)
}
