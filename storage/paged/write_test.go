package paged

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// rowsOf returns Rows that pack rows as the store does.
func rowsOf(eng engine.Engine) *Rows { return New(eng, Options{}) }

// splitBatch splits a batch as the store does.
func splitBatch(b engine.Batch) (batches []engine.Batch) {
	from, bytes := 0, 0
	for i, m := range b.Mutations {
		if bytes+len(m.Value) > engine.MaxBatch*3/4 {
			batches = append(batches, engine.Batch{
				Table: b.Table, Partition: b.Partition, Mutations: b.Mutations[from:i],
			})
			from, bytes = i, 0
		}
		bytes += len(m.Value) + 128
	}
	return append(batches, engine.Batch{Table: b.Table, Partition: b.Partition, Mutations: b.Mutations[from:]})
}

// TestManyNewSeries requires that many new series of a metric are written as few pages and very few rows.
func TestManyNewSeries(t *testing.T) {
	series := seriesOf("up", 10_000)
	for _, table := range rowTables {
		eng := memory.New()
		batches := splitBatch(newSeriesBatch(table, series, 1, 2))
		require.Greater(t, len(batches), 2)
		require.NoError(t, rowsOf(eng).Write(t.Context(), batches))
		count := map[int64]int{}
		for _, p := range pagesIn(t, eng, table, partitionOf("up")) {
			count[p.kind]++
			require.LessOrEqual(t, len(p.value), engine.MaxValue)
		}
		require.GreaterOrEqual(t, count[format.KindLabels], 50, table)
		require.LessOrEqual(t, count[format.KindLabels], 80, table)
		require.Less(t, count[format.KindChunk], 2*80, table)
		rows := mustRead(t, eng.Scan, engine.Range{Table: table, Partition: partitionOf("up")})
		require.Less(t, len(rows), 100,
			"%s: chunks whose labels are in the batch before, and a bucket's few at its end", table)
	}
}

// TestBitsFor requires that levels depend on the density of ids, not on their number.
func TestBitsFor(t *testing.T) {
	idsOf := func(series []testSeries) (ids []string) {
		for _, s := range series {
			ids = append(ids, s.id)
		}
		return ids
	}
	for n, bits := range map[int]int{1: 0, 2: 0, 100: 0, 250: 0, 400: 1, 1500: 3, 40_000: 8} {
		all := idsOf(seriesOf("up", n))
		require.Equal(t, bits, bitsFor(all, 256), n)
		if n >= 1500 {
			require.Equal(t, bits, bitsFor(all[n/3:n/2], 256), "some of %d", n)
		}
	}
	require.Zero(t, bitsFor(nil, 256))
	require.Equal(t, maxBits, bitsFor([]string{noID, noID[1:] + "\x01"}, 256))
	id := "\xab\xcd" + noID[2:]
	for bits, want := range map[int][2]string{
		0: {"\x00\x00", "\xff\xff"}, 3: {"\xa0\x00", "\xbf\xff"}, 12: {"\xab\xc0", "\xab\xcf"},
		16: {"\xab\xcd", "\xab\xcd"},
	} {
		require.Equal(t, want[0]+noID[2:], bucketFirst(id, bits))
		require.Equal(t, want[1]+lastID[2:], bucketLast(id, bits))
	}
	require.Equal(t, "\xac\x00"+noID[2:], nextBucketFirst(bucketLast(id, 8)))
}

// countPacked returns the numbers of rows of a partition that are in pages and that aren't.
func countPacked(t *testing.T, eng engine.Engine, table *engine.Table, metric string) (packed, rows int) {
	for _, p := range pagesIn(t, eng, table, partitionOf(metric)) {
		parsed, err := page.Parse(p.value)
		require.NoError(t, err)
		packed += parsed.Len()
	}
	return packed, len(mustRead(t, eng.Scan, engine.Range{Table: table, Partition: partitionOf(metric)}))
}

// TestLeftAsRows requires that rows that can't be packed stay rows.
func TestLeftAsRows(t *testing.T) {
	series := seriesOf("up", 20)
	slot := 3
	tooGreat := maxTimestamp(startOf(slot)) + 1
	for about, c := range map[string]struct {
		change       func(b *engine.Batch)
		packed, rows int
	}{
		"all is new":             {func(*engine.Batch) {}, 40, 0},
		"series without labels":  {func(b *engine.Batch) { b.Mutations = append(b.Mutations[1:2], b.Mutations[2:]...) }, 38, 1},
		"a chunk further behind": {func(b *engine.Batch) { b.Mutations = append(b.Mutations, series[2].rawChunk(slot+1, 0, 0)) }, 40, 1},
		"too few new series":     {func(b *engine.Batch) { b.Mutations = b.Mutations[:14] }, 0, 14},
		"enough new series":      {func(b *engine.Batch) { b.Mutations = b.Mutations[:16] }, 16, 0},
		"a delete":               {func(b *engine.Batch) { b.Mutations[5].Op, b.Mutations[5].Value = engine.Delete, nil }, 0, 39},
		"a large chunk":          {func(b *engine.Batch) { setRaw(b, 5, slices.Concat(b.Mutations[5].Value, make([]byte, 8<<10))) }, 39, 1},
		"a chunk naming deletes": {func(b *engine.Batch) { b.Mutations[5] = series[2].exempt(slot) }, 39, 1},
		"a cleaned chunk":        {func(b *engine.Batch) { b.Mutations[5] = series[2].rawChunk(slot, 0, 2) }, 39, 1},
		"another version":        {func(b *engine.Batch) { b.Mutations[5].Clustering[3] = engine.Text(lastID) }, 39, 1},
		"a timestamp too great":  {func(b *engine.Batch) { b.Mutations[5].Timestamp = tooGreat }, 39, 1},
		"two chunks of a start":  {func(b *engine.Batch) { b.Mutations = append(b.Mutations, series[2].rawChunk(slot, 1, 0)) }, 40, 1},
		"labels twice":           {func(b *engine.Batch) { b.Mutations = append(b.Mutations, series[2].labelsRow(engine.Raw)) }, 40, 1},
		"exemplars":              {func(b *engine.Batch) { b.Mutations = append(b.Mutations, series[2].exemplars(slot)) }, 40, 1},
		"three of a start": {func(b *engine.Batch) {
			for _, i := range []int{2, 1, 0} { // After the labels and the chunk of each.
				b.Mutations = slices.Insert(b.Mutations, 2*i+2, series[i].rawChunk(slot+1, 0, 0))
			}
		}, 40, 3},
		"four of a start": {func(b *engine.Batch) {
			for _, i := range []int{9, 6, 3, 0} {
				b.Mutations = slices.Insert(b.Mutations, 2*i+2, series[i].rawChunk(slot+1, 0, 0))
			}
		}, 44, 0},
		"labels that aren't the id's": {func(b *engine.Batch) {
			b.Mutations[4].Value = format.AppendLabels(nil, labels.FromStrings("instance", "other"))
		}, 38, 2},
		"labels that can't be read": {func(b *engine.Batch) { b.Mutations[4].Value = []byte("?") }, 38, 2},
	} {
		t.Run(about, func(t *testing.T) {
			b := newSeriesBatch(engine.Raw, series, slot)
			c.change(&b)
			eng, plain := memory.New(), memory.New()
			require.NoError(t, rowsOf(eng).Write(t.Context(), []engine.Batch{b}))
			packed, rows := countPacked(t, eng, engine.Raw, "up")
			require.Equal(t, []int{c.packed, c.rows}, []int{packed, rows})
			require.NoError(t, plain.Write(t.Context(), []engine.Batch{b}))
			all := engine.Range{Table: engine.Raw, Partition: partitionOf("up")}
			requireRows(t, mustRead(t, plain.Scan, all), mustRead(t, New(eng, Options{}).Scan, all), "%s", about)
		})
	}
}

// TestFewOfABucket requires that all rows of a bucket with fewer than four new series stay rows.
func TestFewOfABucket(t *testing.T) {
	all := seriesOf("up", 1500)
	bucket := slices.IndexFunc(all, func(s testSeries) bool { return bucketFirst(s.id, 3) != bucketFirst(noID, 3) })
	for few, rows := range map[int]int{3: 6, 4: 0} {
		series := all[:bucket+few]
		eng := memory.New()
		require.NoError(t, rowsOf(eng).Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series, 1)}))
		require.Equal(t, 3, pagesIn(t, eng, engine.Raw, partitionOf("up"))[0].bits)
		packed, left := countPacked(t, eng, engine.Raw, "up")
		require.Equal(t, []int{2*len(series) - rows, rows}, []int{packed, left})
	}
}

// setRaw sets a chunk, and its version in the key.
func setRaw(b *engine.Batch, i int, value []byte) {
	b.Mutations[i].Value = value
	b.Mutations[i].Clustering[3] = engine.Text(versionOf(value))
}

// TestUnreadableRollupsStayRows requires that a rollup row with an unreadable version, which has no rank, stays a row.
func TestUnreadableRollupsStayRows(t *testing.T) {
	b := newSeriesBatch(engine.R5m, seriesOf("up", 20), 1)
	b.Mutations[3].Value = []byte("no rollups")
	eng := memory.New()
	require.NoError(t, rowsOf(eng).Write(t.Context(), []engine.Batch{b}))
	packed, rows := countPacked(t, eng, engine.R5m, "up")
	require.Equal(t, []int{39, 1}, []int{packed, rows})
}

// TestPagesExpire requires that pages have the expiry of their rows and the max of their timestamps.
func TestPagesExpire(t *testing.T) {
	b := newSeriesBatch(engine.Raw, seriesOf("up", 20), 1, 2)
	b.Expires = 77
	b.Mutations[4].Timestamp += 5 // of a chunk in slot 1
	b.Mutations[6].Timestamp += 9 // of labels
	var pages []engine.Mutation
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		require.Equal(t, engine.RawPages, op.Table)
		require.Equal(t, partitionOf("up"), op.Partition)
		if op.Kind == faultengine.Write {
			require.Equal(t, int64(77), op.Batch.Expires)
			pages = append(pages, op.Batch.Mutations...)
		}
		return faultengine.Pass()
	})
	require.NoError(t, rowsOf(eng).Write(t.Context(), []engine.Batch{b}))
	labels := b.Mutations[0].Timestamp + 9
	require.Len(t, pages, 4, "the labels page, its filter, two data pages")
	want := []int64{labels, labels, (startOf(1)+slotMS)*1000 + 5, (startOf(2) + slotMS) * 1000}
	for i, m := range pages {
		require.Equal(t, want[i], m.Timestamp)
	}
}

// TestWriteInPart requires that a partly failed write leaves no data page without its labels page, for any subset of
// applied batches.
func TestWriteInPart(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	series := seriesOf("up", 2000)
	for range 20 {
		inner := memory.New()
		eng := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && rng.IntN(2) == 0 {
				return faultengine.Fail(nil)
			}
			return faultengine.Pass()
		})
		var slots []int
		for slot := range 1 + rng.IntN(9) {
			slots = append(slots, slot)
		}
		err := rowsOf(eng).Write(t.Context(), splitBatch(newSeriesBatch(engine.Raw, series, slots...)))
		if err != nil {
			require.ErrorIs(t, err, faultengine.ErrFault)
		}
		mustRead(t, New(inner, Options{}).Scan, engine.Range{Table: engine.Raw, Partition: partitionOf("up")})
	}
}

// TestLargeBundle requires that chunks of a bucket that don't fit into one batch stay rows.
func TestLargeBundle(t *testing.T) {
	series := seriesOf("up", 200)
	b := newSeriesBatch(engine.Raw, series)
	rng := rand.New(rand.NewPCG(1, 2))
	for slot := range 4 {
		for i := range series {
			value := make([]byte, 1250)
			for j := range value {
				value[j] = byte(rng.Uint32())
			}
			value[0] = 1
			b.Mutations = append(b.Mutations, engine.Mutation{
				Clustering: format.ChunkKey(series[i].id, startOf(slot), versionOf(value)), Timestamp: 1, Value: value,
			})
		}
	}
	for i := range b.Mutations[:200] { // Nearly as much as fits in a batch.
		b.Mutations[i].Timestamp = 1
	}
	batches := []engine.Batch{b}
	size := 0
	for size < 1 {
		if engine.CheckBatch(&batches[0]) == nil {
			size = len(batches[0].Mutations)
			break
		}
		batches[0].Mutations = batches[0].Mutations[:len(batches[0].Mutations)-1]
	}
	require.Greater(t, size, 600)
	eng, plain := memory.New(), memory.New()
	checked := faultengine.Wrap(eng, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write {
			checkWritten(t, op.Batch, defaultLimits())
		}
		return faultengine.Pass()
	})
	require.NoError(t, rowsOf(checked).Write(t.Context(), batches))
	require.NoError(t, plain.Write(t.Context(), batches))
	all := engine.Range{Table: engine.Raw, Partition: partitionOf("up")}
	requireRows(t, mustRead(t, plain.Scan, all), mustRead(t, New(eng, Options{}).Scan, all), "a large bundle")
}

// TestPassedOn requires that batches with fewer series than Options.Least, invalid batches and other tables are passed
// on unchanged.
func TestPassedOn(t *testing.T) {
	b := newSeriesBatch(engine.Raw, seriesOf("up", 20), 1)
	eng := memory.New()
	require.NoError(t, New(eng, Options{Least: 21}).Write(t.Context(), []engine.Batch{b}))
	packed, rows := countPacked(t, eng, engine.Raw, "up")
	require.Equal(t, []int{0, 40}, []int{packed, rows})

	large := newSeriesBatch(engine.Raw, seriesOf("up", 20), 1)
	large.Mutations[1].Value = make([]byte, engine.MaxValue+1)
	require.ErrorIs(t, rowsOf(eng).Write(t.Context(), []engine.Batch{b, large}), engine.ErrTooLarge)
	require.Empty(t, pagesIn(t, eng, engine.Raw, partitionOf("up")), "nothing was written")

	_, _, err := New(eng, Options{}).Outdone(t.Context(), engine.Catalog, partitionOf("up"), nil)
	require.ErrorIs(t, err, engine.ErrBadKey)
}

// TestWriteKeepsBatches requires that Write doesn't modify the caller's batches, which may be written again.
func TestWriteKeepsBatches(t *testing.T) {
	b := newSeriesBatch(engine.Raw, seriesOf("up", 30), 1, 2)
	before := fmt.Sprint(b)
	eng := memory.New()
	lost := errors.New("lost")
	r := rowsOf(faultengine.Wrap(eng, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.N == 1 {
			return faultengine.Fail(lost)
		}
		return faultengine.Pass()
	}))
	require.ErrorIs(t, r.Write(t.Context(), []engine.Batch{b}), lost)
	require.Empty(t, r.ids.entries, "ids of pages that may not be there")
	require.NoError(t, r.Write(t.Context(), []engine.Batch{b}))
	require.Equal(t, before, fmt.Sprint(b))
	packed, rows := countPacked(t, eng, engine.Raw, "up")
	require.Equal(t, []int{90, 0}, []int{packed, rows})
}

// TestIDsAreCached requires that Write caches ids, so that reading the pages scans no labels pages, and that the cache
// is bounded.
func TestIDsAreCached(t *testing.T) {
	labelsPages := 0
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.RawPages && len(op.Range.From) == 5 &&
			op.Range.From[0].Int == format.KindLabels {
			labelsPages++
		}
		return faultengine.Pass()
	})
	chunks := engine.Range{
		Table: engine.Raw, Partition: partitionOf("up"), From: engine.Key{engine.Int(format.KindChunk)},
	}
	r := rowsOf(eng)
	require.NoError(t, r.Write(t.Context(), splitBatch(newSeriesBatch(engine.Raw, seriesOf("up", 3000), 1))))
	require.Len(t, mustRead(t, r.Scan, chunks), 3000)
	require.Zero(t, labelsPages)

	cold := New(eng, Options{})
	mustRead(t, cold.Scan, chunks)
	pages := labelsPages
	require.Greater(t, pages, 10)
	mustRead(t, cold.Scan, chunks)
	require.Equal(t, pages, labelsPages)

	small := New(eng, Options{IDsBytes: 10 << 10})
	mustRead(t, small.Scan, chunks)
	require.LessOrEqual(t, small.ids.bytes, int64(10<<10))
	require.NotEmpty(t, small.ids.entries)
	require.Len(t, mustRead(t, small.Scan, chunks), 3000)
	require.Equal(t, len(small.ids.entries), small.ids.recent.Len())
}

// TestPagesAreAMetrics requires that equal labels of two metrics are different series, although versions are hashes of
// values without the metric's name and pages of two metrics may be equal.
func TestPagesAreAMetrics(t *testing.T) {
	for _, table := range rowTables {
		eng := memory.New()
		r := New(eng, Options{Least: 1})
		r.limits.entries, r.limits.fewest = 1, 1
		one := slices.DeleteFunc(seriesOf("one", 40), func(s testSeries) bool { return s.labels.Get("job") == "" })
		two := make([]testSeries, len(one))
		for i, s := range one {
			b := labels.NewBuilder(s.labels)
			b.Set(labels.MetricName, "two")
			ls := b.Labels()
			two[i] = testSeries{format.SeriesIDOf(ls).String(), "two", ls}
		}
		batches := []engine.Batch{newSeriesBatch(table, one, 1), newSeriesBatch(table, two, 1)}
		for i, m := range batches[0].Mutations { // Both have the same chunks.
			if m.Clustering[0].Int == format.KindChunk {
				key := slices.Clone(m.Clustering)
				key[tablesOf(table).series] = batches[1].Mutations[i].Clustering[tablesOf(table).series]
				batches[1].Mutations[i] = engine.Mutation{Clustering: key, Timestamp: m.Timestamp, Value: m.Value}
			}
		}
		require.NoError(t, r.Write(t.Context(), batches))
		versions := map[string]int{}
		for _, metric := range []string{"one", "two"} {
			for _, p := range pagesIn(t, eng, table, partitionOf(metric)) {
				versions[p.version]++
			}
		}
		require.Len(t, versions, 60)
		for range 2 {
			for i, s := range slices.Concat(one, two) {
				key := format.RollupKey(s.id, startOf(1))
				if table == engine.Raw {
					key = engine.Key{engine.Int(format.KindChunk), engine.Int(startOf(1)), engine.Text(s.id)}
				}
				rows := mustRead(t, r.Scan, engine.Range{
					Table: table, Partition: partitionOf(s.metric), From: key, To: key,
				})
				require.Len(t, rows, 1, i)
				require.Equal(t, s.id, rows[0].key[tablesOf(table).series].Text)
			}
		}
	}
}
