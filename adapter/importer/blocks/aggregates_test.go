package blocks

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// thanosCourse returns the samples of the golden chunks, without stale markers: a counter with resets, or a gauge. Both
// have a gap of two hours.
func thanosCourse(kind string) (s chunk.Samples) {
	total := 5.0
	for i := range int64(3000) {
		switch kind {
		case "counter":
			if total += float64(i * 7 % 13); i%701 == 700 {
				total = float64(i % 3)
			}
		case "gauge":
			total = float64(i*31%97)/4 - 7
		}
		if i < 1300 || i >= 1500 {
			s.AppendFloat(1_600_000_123_000+i*37_000+i*i%11*100, 0, total)
		}
	}
	return s
}

func xorOf(t testing.TB, list []stamped) *chunkenc.XORChunk {
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	require.NoError(t, err)
	for _, p := range list {
		app.Append(0, p.t, p.v)
	}
	return c
}

// aggregatesOf returns the chunk of aggregates of s. s must hold all samples of its windows.
func aggregatesOf(t testing.TB, s *chunk.Samples, width int64) chunks.Meta {
	var all [aggregates][]stamped
	counter, last := s.V[0], len(s.T)-1
	all[aggregateCounter] = []stamped{{s.T[0], s.V[0]}}
	for from := 0; from <= last; {
		end := s.T[from] - s.T[from]%width + width
		n, sum, least, most := 0.0, 0.0, math.MaxFloat64, -math.MaxFloat64
		to := from
		for ; to <= last && s.T[to] < end; to++ {
			if to > 0 {
				if counter += s.V[to]; s.V[to] >= s.V[to-1] {
					counter -= s.V[to-1]
				}
			}
			n, sum, least, most = n+1, sum+s.V[to], min(least, s.V[to]), max(most, s.V[to])
		}
		at := min(end-1, s.T[last])
		for i, v := range [...]float64{n, sum, least, most, counter} {
			all[i] = append(all[i], stamped{at, v})
		}
		from = to
	}
	stamps := all[aggregateCount]
	all[aggregateCounter] = append(all[aggregateCounter], stamped{stamps[len(stamps)-1].t, s.V[last]})
	var data []byte
	for _, list := range all {
		c := xorOf(t, list)
		data = append(append(binary.AppendUvarint(data, uint64(len(c.Bytes()))), byte(c.Encoding())), c.Bytes()...)
	}
	return chunks.Meta{MinTime: stamps[0].t, MaxTime: stamps[len(stamps)-1].t, Chunk: &aggregateChunk{data: data}}
}

// downsampled returns chunks of aggregates of samples, with the given number of non-empty windows per chunk.
func downsampled(t testing.TB, s *chunk.Samples, width int64, windows int) (list []chunks.Meta) {
	var part chunk.Samples
	seen := map[int64]bool{}
	for i, at := range s.T {
		if math.IsNaN(s.V[i]) {
			continue
		}
		if k := at / width; !seen[k] {
			if len(seen) == windows {
				list = append(list, aggregatesOf(t, &part, width))
				part, seen = chunk.Samples{}, map[int64]bool{}
			}
			seen[k] = true
		}
		part.AppendFloat(at, 0, s.V[i])
	}
	return append(list, aggregatesOf(t, &part, width))
}

// writeDownsampled writes a block of aggregates like Thanos, with the given number of windows per chunk.
func writeDownsampled(
	t testing.TB, dir string, external map[string]string, width int64, windows int, list ...series,
) string {
	t.Helper()
	slices.SortFunc(list, func(a, b series) int { return labels.Compare(a.labels, b.labels) })
	id := ulid.Make()
	dir = filepath.Join(dir, id.String())
	require.NoError(t, os.MkdirAll(dir, 0o755))
	cw, err := chunks.NewWriter(filepath.Join(dir, "chunks"))
	require.NoError(t, err)
	iw, err := index.NewWriter(t.Context(), filepath.Join(dir, "index"))
	require.NoError(t, err)
	symbols := map[string]bool{}
	for _, s := range list {
		s.labels.Range(func(l labels.Label) { symbols[l.Name], symbols[l.Value] = true, true })
	}
	for _, text := range sortedKeys(symbols) {
		require.NoError(t, iw.AddSymbol(text))
	}
	meta := tsdb.BlockMeta{
		Version: 1, ULID: id, MinTime: math.MaxInt64, MaxTime: math.MinInt64,
		Compaction: tsdb.BlockMetaCompaction{Level: 2, Sources: []ulid.ULID{id}},
	}
	for i, s := range list {
		metas := downsampled(t, &s.samples, width, windows)
		require.NoError(t, cw.WriteChunks(metas...))
		require.NoError(t, iw.AddSeries(promstorage.SeriesRef(i+1), s.labels, metas...))
		meta.MinTime, meta.MaxTime = min(meta.MinTime, s.samples.T[0]), max(meta.MaxTime, metas[len(metas)-1].MaxTime+1)
		meta.Stats.NumSeries++
	}
	require.NoError(t, cw.Close())
	require.NoError(t, iw.Close())
	text, err := json.Marshal(meta)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "meta.json"), text, 0o644))
	thanos(t, dir, external, width)
	return dir
}

func sortedKeys(m map[string]bool) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// leftClosed moves samples at a window edge one millisecond later, so that a bucket gets the samples of the window with
// the same edges.
func leftClosed(s *chunk.Samples, width int64) *chunk.Samples {
	moved := &chunk.Samples{}
	for i, t := range s.T {
		if math.IsNaN(s.V[i]) {
			continue
		}
		if t%width == 0 {
			t++
		}
		moved.AppendFloat(t, 0, s.V[i])
	}
	return moved
}

// requireAggregates compares buckets of aggregates with buckets of the samples. If exact is set, the last values, the
// first values of windows without a counter reset, and the increases must be equal.
func requireAggregates(t testing.TB, s *chunk.Samples, got *rollup.Buckets, width int64, exact bool) {
	t.Helper()
	var want rollup.Buckets
	rollup.AppendEvery(&want, leftClosed(s, width), width)
	require.NoError(t, got.CheckAggregates(width))
	require.Equal(t, want.End, got.End)
	require.Equal(t, want.Count, got.Count)
	require.Equal(t, want.Min, got.Min)
	require.Equal(t, want.Max, got.Max)
	for i := range want.End {
		require.InDelta(t, want.Sum[i], got.Sum[i], 1e-9*max(1, math.Abs(want.Sum[i])))
		require.InDelta(t, want.FirstT[i], got.FirstT[i], float64(width)*3/4)
		if exact && want.Resets[i] == 0 {
			require.InDelta(t, want.First[i], got.First[i], 1e-9)
		}
		if exact {
			require.InDelta(t, want.Last[i], got.Last[i], 1e-9)
		}
	}
	if increase := func(b *rollup.Buckets) (all float64) {
		for i := range b.End {
			switch {
			case i == 0:
			case b.First[i] < b.Last[i-1]:
				all += b.First[i]
			default:
				all += b.First[i] - b.Last[i-1]
			}
			all += b.Last[i] - b.First[i] + b.Correction[i]
		}
		return all
	}; exact {
		require.InDelta(t, increase(&want), increase(got), 1e-6)
	}
}

// TestGoldenAggregates decodes chunks made by Thanos. Their windows must match the samples, and the encoder of this
// test must produce the same chunks.
func TestGoldenAggregates(t *testing.T) {
	text, err := os.ReadFile("testdata/thanos.json")
	require.NoError(t, err)
	type golden struct {
		MinMS int64 `json:"min_ms"`
		MaxMS int64 `json:"max_ms"`
		Data  []byte
	}
	var all []struct {
		Kind        string
		FiveMinutes []golden `json:"five_minutes"`
		OneHour     []golden `json:"one_hour"`
	}
	require.NoError(t, json.Unmarshal(text, &all))
	require.Len(t, all, 2)
	for _, g := range all {
		samples := thanosCourse(g.Kind)
		for width, list := range map[int64][]golden{300_000: g.FiveMinutes, 3_600_000: g.OneHour} {
			var windows []window
			for _, c := range list {
				own := &aggregateChunk{data: c.Data}
				w, err := windowsOf(own, width)
				require.NoError(t, err)
				require.True(t, w.hasCounter)
				require.Equal(t, c.MinMS, w.list[0].stamp)
				require.Equal(t, c.MaxMS, w.list[len(w.list)-1].stamp)
				w.estimate(g.Kind == "counter")
				windows = appendWindows(windows, w.list)
				if width == 300_000 {
					part := chunk.Samples{}
					part.AppendAll(&samples)
					part.Clip(w.list[0].start, w.list[len(w.list)-1].end-1)
					require.Equal(t, aggregatesOf(t, &part, width).Chunk.Bytes(), c.Data)
				}
			}
			var got rollup.Buckets
			appendBuckets(&got, windows)
			requireAggregates(t, &samples, &got, width, g.Kind == "counter" && width == 300_000)
		}
	}
}

// TestDownsampledBlocks checks that the windows of 5m and 1h blocks, read in batches together with a raw block, match
// the samples, and that each position yields the remaining batches.
func TestDownsampledBlocks(t *testing.T) {
	dir := t.TempDir()
	list := []series{
		{labels: labels.FromStrings(labels.MetricName, "requests_total"), samples: thanosCourse("counter")},
		{labels: labels.FromStrings(labels.MetricName, "temperature"), samples: thanosCourse("gauge")},
	}
	for _, width := range []int64{300_000, 3_600_000} {
		writeDownsampled(t, dir, map[string]string{"cluster": "c"}, width, 50, list...)
	}
	write(t, dir, list...)
	o := Options{Dirs: []string{dir}, Selection: importer.Everything(), BatchBytes: 3000}
	read := func(after string) (all []importer.Batch) {
		for b, err := range open(t, o).Batches(t.Context(), after) {
			require.NoError(t, err)
			require.Empty(t, b.Skipped)
			all = append(all, b)
		}
		return all
	}
	batches := read("")
	require.Greater(t, len(batches), 6)
	got := map[string]map[rollup.Resolution]*rollup.Buckets{}
	for i, b := range batches {
		require.Equal(t, batches[i+1:], append([]importer.Batch{}, read(b.Position)...))
		for _, x := range b.Buckets {
			require.Equal(t, "c", x.Labels.Get("cluster"))
			name := x.Labels.Get(labels.MetricName)
			if got[name] == nil {
				got[name] = map[rollup.Resolution]*rollup.Buckets{rollup.FiveMinutes: {}, rollup.OneHour: {}}
			}
			var all rollup.Buckets
			rollup.Merge(&all, got[name][x.Resolution], x.Buckets, rollup.AllColumns)
			got[name][x.Resolution] = &all
		}
	}
	for _, s := range list {
		for res, b := range got[s.labels.Get(labels.MetricName)] {
			requireAggregates(t, &s.samples, b, res.Width(),
				s.labels.Get(labels.MetricName) == "requests_total" && res == rollup.FiveMinutes)
		}
	}
}

// TestSelectedAggregates reads blocks in two parts that meet within a window, between windows and at a timestamp. Each
// window must be in exactly one part.
func TestSelectedAggregates(t *testing.T) {
	samples := thanosCourse("counter")
	for _, width := range []int64{300_000, 3_600_000} {
		dir := t.TempDir()
		writeDownsampled(t, dir, nil, width, 50, series{
			labels: labels.FromStrings(labels.MetricName, "requests_total"), samples: samples,
		})
		read := func(from, to int64) (n int) {
			o := Options{Dirs: []string{dir}, Selection: importer.Selection{MinMS: from, MaxMS: to}}
			for b, err := range open(t, o).Batches(t.Context(), "") {
				require.NoError(t, err)
				for _, x := range b.Buckets {
					n += x.Buckets.Samples()
				}
			}
			return n
		}
		first, last := samples.T[0], samples.T[samples.Len()-1]
		require.Equal(t, samples.Len(), read(math.MinInt64, math.MaxInt64))
		middle := (first/width + 20) * width
		for _, at := range []int64{
			middle - 2, middle - 1, middle, middle + 1, middle + width/2, dayOf(last), dayOf(last) + 1,
			dayOf(last) + width/3, last - 1, last,
		} {
			require.Equal(t, samples.Len(), read(math.MinInt64, at-1)+read(at, math.MaxInt64), at)
		}
		require.Equal(t, read(math.MinInt64, middle-1), read(math.MinInt64, middle+width/2), "the end of the window")
	}
}

// TestDamagedAggregates checks that truncated chunks are errors, and that corrupted chunks don't cause a panic.
func TestDamagedAggregates(t *testing.T) {
	samples := thanosCourse("counter")
	data := downsampled(t, &samples, 300_000, 20)[0].Chunk.Bytes()
	for n := range data {
		_, err := windowsOf(&aggregateChunk{data: data[:n]}, 300_000)
		require.Error(t, err)
		changed := slices.Clone(data)
		changed[n] ^= 0xff
		if w, err := windowsOf(&aggregateChunk{data: changed}, 300_000); err == nil {
			w.estimate(false)
		}
	}
	stale := chunk.Samples{T: samples.T, V: slices.Clone(samples.V)}
	stale.V[7] = math.Float64frombits(value.StaleNaN)
	require.Len(t, downsampled(t, &stale, 300_000, 1000), 1)
}

// TestUndeclaredAggregates reads blocks of aggregates whose meta.json describes samples, or windows of another width.
// No chunk may be skipped without a report.
func TestUndeclaredAggregates(t *testing.T) {
	counter := series{labels: labels.FromStrings(labels.MetricName, "requests_total"), samples: thanosCourse("counter")}
	for name, change := range map[string]func(dir string){
		"resolution 0": func(dir string) { thanos(t, dir, nil, 0) },
		"no section": func(dir string) {
			path := filepath.Join(dir, "meta.json")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			var meta tsdb.BlockMeta
			require.NoError(t, json.Unmarshal(text, &meta))
			text, err = json.Marshal(meta)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, text, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			block := writeDownsampled(t, dir, nil, 300_000, 50, counter)
			change(block)
			var got error
			for _, err := range open(t, Options{
				Dirs: []string{dir}, Selection: importer.Everything(),
			}).Batches(t.Context(), "") {
				got = err
			}
			require.ErrorIs(t, got, errUndeclared)
			require.ErrorContains(t, got, block)
		})
	}
	t.Run("wider windows", func(t *testing.T) {
		dir := t.TempDir()
		thanos(t, writeDownsampled(t, dir, nil, 300_000, 50, counter), nil, 3_600_000)
		var skipped []importer.Skip
		for b, err := range open(t, Options{
			Dirs: []string{dir}, Selection: importer.Everything(),
		}).Batches(t.Context(), "") {
			require.NoError(t, err)
			skipped = append(skipped, b.Skipped...)
			require.Empty(t, b.Buckets)
		}
		require.Len(t, skipped, len(downsampled(t, &counter.samples, 300_000, 50)))
	})
}

// TestFalselyDeclaredSamples reads a block of samples whose meta.json describes windows, and blocks whose time range is
// reversed. Both are one error with the block's path.
func TestFalselyDeclaredSamples(t *testing.T) {
	counter := series{labels: labels.FromStrings(labels.MetricName, "requests_total"), samples: thanosCourse("counter")}
	dir := t.TempDir()
	block := write(t, dir, counter)
	thanos(t, block, nil, 300_000)
	var got error
	source := open(t, Options{Dirs: []string{dir}, Selection: importer.Everything()})
	for _, err := range source.Batches(t.Context(), "") {
		got = err
	}
	require.ErrorIs(t, got, errDeclared)
	require.ErrorContains(t, got, block)
	path := filepath.Join(block, "meta.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var meta tsdb.BlockMeta
	require.NoError(t, json.Unmarshal(text, &meta))
	meta.MinTime, meta.MaxTime = meta.MaxTime, meta.MinTime
	text, err = json.Marshal(meta)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o644))
	_, err = find([]string{dir})
	require.ErrorIs(t, err, errDamaged)
	require.ErrorContains(t, err, "minTime is after maxTime")
}

// TestImpossibleWindows reads chunks with a window that has more samples than milliseconds, and with windows out of
// order. The error names the fault.
func TestImpossibleWindows(t *testing.T) {
	for want, points := range map[string][4][]stamped{
		"a window of 300001 samples at 299999 ms; it may have 1 to 300000": {
			{{299_999, 300_001}}, {{299_999, 300_001}}, {{299_999, 1}}, {{299_999, 1}},
		},
		"windows out of order: 299999 ms after 299999 ms": {
			{{299_999, 1}, {299_999, 1}}, {{299_999, 1}, {299_999, 1}}, {{299_999, 1}, {299_999, 1}},
			{{299_999, 1}, {299_999, 1}},
		},
	} {
		var data []byte
		for _, list := range points {
			c := xorOf(t, list)
			data = append(append(binary.AppendUvarint(data, uint64(len(c.Bytes()))), byte(c.Encoding())), c.Bytes()...)
		}
		_, err := windowsOf(&aggregateChunk{data: append(data, 0)}, 300_000)
		require.ErrorIs(t, err, errAggregates)
		require.ErrorContains(t, err, want)
	}
}

// TestContradictoryAggregates reads chunks with a window whose values contradict each other. The chunk is damaged.
func TestContradictoryAggregates(t *testing.T) {
	const at = 299_999
	for name, values := range map[string][4]float64{ // count, sum, min, max
		"sum too small": {10, 9, 1, 5}, "sum too large": {10, 51, 1, 5}, "min above max": {10, 30, 5, 1},
		"one sample": {1, 1, 1, 2}, "infinite max": {10, 30, 1, math.Inf(1)}, "infinite min": {10, 30, math.Inf(-1), 5},
	} {
		var data []byte
		for _, v := range values {
			c := xorOf(t, []stamped{{at, v}})
			data = append(append(binary.AppendUvarint(data, uint64(len(c.Bytes()))), byte(c.Encoding())), c.Bytes()...)
		}
		_, err := windowsOf(&aggregateChunk{data: append(data, 0)}, 300_000)
		require.ErrorIs(t, err, errAggregates, name)
		require.ErrorContains(t, err, "contradict each other", name)
	}
}
