package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// small covers a few days that include the boundary between two of Prometheus' blocks.
var small = dataset{Counters: 14, Gauges: 6, Days: 3, IntervalMs: 600_000, EndMs: (1000*blockMs/dayMs + 2) * dayMs}

// samples contains the samples of a series by time in milliseconds.
type samples map[int64]float64

// generated returns all samples of a dataset by the labels of their series.
func generated(t *testing.T, d dataset) map[string]samples {
	t.Helper()
	all := map[string]samples{}
	for i := range d.series() {
		all[d.labelsOf(i).String()] = samples{}
	}
	require.Len(t, all, d.series(), "no two series have the same labels")
	g := newGenerator(d)
	for range d.Days * d.stepsOfDay() {
		from := g.now
		require.NoError(t, g.step(func(i int, at int64, v float64) error {
			require.Greater(t, at, from)
			require.Less(t, at, from+d.IntervalMs)
			all[d.labelsOf(i).String()][at] = v
			return nil
		}))
	}
	require.Equal(t, d.EndMs, g.now)
	return all
}

func TestDatasetIsWhatItSays(t *testing.T) {
	d := small
	d.Days = 30
	all := generated(t, d)
	require.Equal(t, all, generated(t, d), "whoever generates it gets the same")
	total := 0
	for i := range d.series() {
		one := all[d.labelsOf(i).String()]
		total += len(one)
		falls, before := 0, math.Inf(-1)
		offset := newGenerator(d).states[i].offset
		for at := d.startMs() + offset; at < d.EndMs; at += d.IntervalMs {
			v := one[at]
			require.InDelta(t, math.Round(v*100), v*100, 1e-6, "hundredths at most")
			if v < before {
				falls++
			}
			before = v
		}
		if i < d.Counters {
			require.Less(t, falls, 16, "a counter starts again every two days at most")
			require.Greater(t, falls, 2, "a counter starts again")
		} else {
			require.Greater(t, falls, 500, "a gauge wanders")
			require.LessOrEqual(t, before, 100.0)
		}
	}
	require.EqualValues(t, d.samples(), total)
}

func TestDatasetsThatCannotBe(t *testing.T) {
	require.NoError(t, small.validate())
	for name, change := range map[string]func(*dataset){
		"no counters":       func(d *dataset) { d.Counters = 0 },
		"no days":           func(d *dataset) { d.Days = 0 },
		"an odd interval":   func(d *dataset) { d.IntervalMs = 7001 },
		"no interval":       func(d *dataset) { d.IntervalMs = 0 },
		"an end in the day": func(d *dataset) { d.EndMs++ },
	} {
		d := small
		change(&d)
		require.ErrorIs(t, d.validate(), errDataset, name)
	}
}

// TestBothHoldTheSame fills both stores and requires that they contain the same samples.
func TestBothHoldTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills two stores on disk")
	}
	dir, want := t.TempDir(), generated(t, small)
	_, err := fillCassia(t.Context(), filepath.Join(dir, "cassia"), small)
	require.NoError(t, err)
	require.NoError(t, fillPrometheus(t.Context(), filepath.Join(dir, "prometheus"), small))
	require.Equal(t, want, inPrometheus(t, filepath.Join(dir, "prometheus", "data")))
	require.Equal(t, want, inCassia(t, filepath.Join(dir, "cassia", "data")))
}

func inPrometheus(t *testing.T, dir string) map[string]samples {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "wal"), 0o700), "it is looked for")
	db, err := tsdb.OpenDBReadOnly(dir, "", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	blocks, err := db.Blocks()
	require.NoError(t, err)
	require.Len(t, blocks, 2, "one before the multiple of the length of blocks, one after")
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer q.Close()
	found := map[string]samples{}
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+"))
	for set.Next() {
		found[set.At().Labels().String()] = readSeries(t, set.At())
	}
	require.NoError(t, set.Err())
	return found
}

func readSeries(t *testing.T, s promstorage.Series) samples {
	t.Helper()
	found := samples{}
	it := s.Iterator(nil)
	for it.Next() == chunkenc.ValFloat {
		at, v := it.At()
		found[at] = v
	}
	require.NoError(t, it.Err())
	return found
}

func inCassia(t *testing.T, dir string) map[string]samples {
	t.Helper()
	found := map[string]samples{}
	require.NoError(t, withEngine(dir, func(e *pebble.Engine) error {
		store := storagetest.Start(t, e, storagetest.KeepForever)
		defer func() { require.NoError(t, store.Close()) }()
		stats, err := store.Check(t.Context(), func(problem string) { t.Error(problem) })
		require.NoError(t, err)
		require.EqualValues(t, small.samples(), stats.Samples)
		require.Zero(t, stats.Blobs, "all is sealed")
		require.Positive(t, stats.Rollups)
		for _, metric := range []string{counterName, gaugeName} {
			list, err := store.Select(t.Context(), query.Query{
				Tenant: tenant, MinT: small.startMs(), MaxT: small.EndMs,
				Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)},
			})
			require.NoError(t, err)
			for _, s := range list {
				var all chunk.Samples
				require.NoError(t, s.Samples(&all))
				one := samples{}
				for i, at := range all.T {
					one[at] = all.V[i]
				}
				found[s.Labels.String()] = one
			}
		}
		return nil
	}))
	return found
}

func TestQuestionsLieInTheData(t *testing.T) {
	for _, days := range []int{3, 30, 90} {
		d := small
		d.Days = days
		list := questions(d)
		if days > 30 {
			require.Len(t, list, 14)
		} else {
			require.Len(t, list, 7)
		}
		named := map[string]bool{}
		for _, q := range list {
			require.False(t, named[q.String()], q)
			named[q.String()] = true
			require.False(t, q.start.Before(d.start().Add(time.Hour)), q)
			require.Equal(t, d.end(), q.end)
			require.Equal(t, strings.Contains(q.what, "unaligned"), q.start.Truncate(q.step) != q.start, q)
		}
	}
}

func TestDifference(t *testing.T) {
	answerOf := func(result string) answer {
		a, err := parseAnswer([]byte(`{"status":"success","data":{"resultType":"matrix","result":[` + result + `]}}`))
		require.NoError(t, err)
		return a
	}
	want := answerOf(`{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"],[180,"4"]]},{"metric":{},"values":[[60,"0"]]}`)
	require.Equal(t, 4, want.points())
	for name, c := range map[string]struct {
		got      string
		shape    string
		relative float64
	}{
		"the same":         {got: `{"metric":{},"values":[[60,"0"]]},{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"],[180,"4"]]}`},
		"a value":          {got: `{"metric":{},"values":[[60,"0"]]},{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"],[180,"5"]]}`, relative: 0.2},
		"no number":        {got: `{"metric":{},"values":[[60,"0"]]},{"metric":{"a":"1"},"values":[[60,"1"],[120,"1"],[180,"4"]]}`, relative: math.Inf(1)},
		"infinite":         {got: `{"metric":{},"values":[[60,"+Inf"]]},{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"],[180,"4"]]}`, relative: math.Inf(1)},
		"a time":           {got: `{"metric":{},"values":[[61,"0"]]},{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"],[180,"4"]]}`, shape: "a point at 61"},
		"a point less":     {got: `{"metric":{},"values":[[60,"0"]]},{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"]]}`, shape: "2 points, not 3"},
		"a series less":    {got: `{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"],[180,"4"]]}`, shape: "no series"},
		"a series more":    {got: `{"metric":{"b":"1"},"values":[[60,"0"]]},{"metric":{},"values":[[60,"0"]]},{"metric":{"a":"1"},"values":[[60,"1"],[120,"NaN"],[180,"4"]]}`, shape: "a series too many"},
		"nothing but this": {shape: "no series"},
	} {
		d := differenceOf(want, answerOf(c.got))
		require.Equal(t, c.relative, d.relative, name)
		if c.shape == "" {
			require.Empty(t, d.shape, name)
		} else {
			require.Contains(t, d.shape, c.shape, name)
		}
	}
	require.NotEmpty(t, differenceOf(answer{}, answer{}).shape, "nothing proves nothing")
	for _, bad := range []string{
		``, `{"status":"error"}`, `{"status":"success","data":{"resultType":"vector","result":[]}}`,
		`{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1,"x"]]}]}}`,
	} {
		_, err := parseAnswer([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestUsualDifferenceLeavesOutTheFew(t *testing.T) {
	want, got := series{}, series{}
	for i := range 200 {
		want.at, got.at = append(want.at, float64(i)), append(got.at, float64(i))
		want.values, got.values = append(want.values, 1), append(got.values, 1)
	}
	got.values[17] = 2
	d := differenceOf(answer{"": want}, answer{"": got})
	require.Equal(t, 0.5, d.relative)
	require.Zero(t, d.usual)
	got.values[18], got.values[19] = 2, 4
	require.Equal(t, 0.5, differenceOf(answer{"": want}, answer{"": got}).usual)
}

func TestWhichDifferencesAreWrong(t *testing.T) {
	for name, c := range map[string]struct {
		from  string
		diff  difference
		wrong bool
	}{
		"the same":                 {from: "1h"},
		"added in another order":   {from: "1h", diff: difference{relative: 1e-12}},
		"exact that isn't":         {from: "5m, raw", diff: difference{relative: 1e-6}, wrong: true},
		"raw that isn't":           {from: "raw", diff: difference{relative: 1e-6}, wrong: true},
		"snapped":                  {from: "1h snapped, raw", diff: difference{relative: 0.1}},
		"snapped, and points lost": {from: "1h snapped", diff: difference{shape: "no series"}, wrong: true},
	} {
		got := compared{from: c.from, difference: c.diff}.wrong()
		require.Equal(t, c.wrong, got != "", "%s: %s", name, got)
	}
}

func TestTables(t *testing.T) {
	k := disk{prometheus: 1000, left: 900, compacted: 800, tables: map[string]uint64{"raw": 500, "r5m": 200, "r1h": 50}}
	text := fillTable(small, k, costs{Write: time.Second, Seal: 2 * time.Second})
	require.Contains(t, text, "| Cassia: raw, r5m and r1h | 0.087 | 0.75 |")
	q := questions(small)[0]
	text = queryTable("auto", []result{
		{question: q, prometheus: taken{time: 2 * time.Second, cpu: 3 * time.Second}, cassia: map[string]compared{
			"auto": {
				taken: taken{time: 20 * time.Millisecond, cpu: 10 * time.Millisecond}, from: "1h",
				difference: difference{relative: 1e-13},
			},
		}},
	})
	require.Contains(t, text, "over 3 d | 3000 ms | 2000 ms | 10 ms | 20 ms | 300.0× | 100.0× | 1h | 1e-13, 0 |")
	require.Contains(t, text, "| all | 3000 ms |")
}

func TestCPUOfThisProcess(t *testing.T) {
	pid := 1 << 30
	_, err := cpuOf(pid)
	require.Error(t, err, "there is no such process")
}
