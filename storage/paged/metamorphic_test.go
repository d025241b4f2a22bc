package paged

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestMetamorphic writes random rows through pages and to a plain engine. Every range must have the same rows in both,
// for any pages and any superseded entries.
func TestMetamorphic(t *testing.T) {
	first := soak.FirstSeed(t)
	for name, open := range engines {
		for i := range soak.Histories(t, 12) {
			seed := first + uint64(i)
			t.Run(name+"/"+strconv.FormatUint(seed, 10), func(t *testing.T) {
				eng := open(t)
				defer func() { require.NoError(t, eng.Close()) }()
				newHistory(t, eng, seed).run(150)
			})
		}
	}
}

const historySlots = 5

// history is a random history of writes and scans.
type history struct {
	t     testing.TB
	rng   *rand.Rand
	eng   engine.Engine  // with pages
	plain *memory.Engine // without pages
	rows  *Rows
	all   map[string][]testSeries // by metric

	limits limits
	ids    int64
	long   bool // the window may have long chunks
	// deletes is the number of deletes that each written raw chunk names.
	deletes map[string]int
	// lookUps are earlier results of Candidates.
	lookUps []lookUp
}

func newHistory(t testing.TB, eng engine.Engine, seed uint64) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 7)), plain: memory.New(), all: map[string][]testSeries{},
		limits: defaultLimits(), deletes: map[string]int{}}
	// Verify batches before they reach the engine.
	h.eng = faultengine.Wrap(eng, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write {
			checkWritten(t, op.Batch, h.limits)
		}
		return faultengine.Pass()
	})
	for metric, n := range map[string]int{"up": 300, "http_requests_total": 40} {
		h.all[metric] = seriesOf(metric, n)
	}
	if h.rng.IntN(3) > 0 {
		h.limits = limits{
			entries: 3 + h.rng.IntN(20), bucket: 2 + h.rng.IntN(60), labelsBytes: 300 + h.rng.IntN(2000),
			dataBytes: 200 + h.rng.IntN(1000), entryBytes: 90 + h.rng.IntN(200),
			batchBytes: 200 + h.rng.IntN(1+h.rng.IntN(5000)), gatherBytes: h.rng.IntN(3000), fewest: 1 + h.rng.IntN(3),
			filtered:     h.rng.IntN(60),
			compactBytes: 1 + h.rng.IntN(1+h.rng.IntN(20_000)), compactRows: 1 + h.rng.IntN(300),
		}
	}
	h.ids = pick(h.rng, []int64{1, 2000, 8 << 20})
	h.reopen()
	return h
}

// checkWritten verifies the invariants of pages in a batch.
func checkWritten(t testing.TB, b *engine.Batch, l limits) {
	require.NoError(t, engine.CheckClearing([]engine.Batch{*b}))
	if b.Table != engine.RawPages && b.Table != engine.R5mPages && b.Table != engine.R1hPages {
		return
	}
	size, labels, outdone := keyBytes(b.Partition), map[string]bool{}, false
	for _, m := range b.Mutations {
		outdone = outdone || m.Op == engine.Delete
	}
	for _, m := range b.Mutations {
		size += mutationBytes(&m)
		if m.Op == engine.Delete || m.Clustering[0].Int == format.KindFilter {
			continue
		}
		require.Equal(t, versionOf(m.Value), m.Clustering[pageVersion].Text)
		p, err := page.Parse(m.Value)
		require.NoError(t, err)
		require.LessOrEqual(t, p.Len(), l.entries)
		if head := p.Head(); head.Kind == page.Labels {
			labels[m.Clustering[pageVersion].Text] = true
		} else {
			require.True(t, labels[head.Labels] || outdone,
				"a data page without its labels page in the batch before it")
		}
	}
	require.LessOrEqual(t, size, l.batchBytes)
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// reopen clears all caches.
func (h *history) reopen() {
	least := 2
	if h.rng.IntN(8) == 0 {
		least = math.MaxInt // all rows stay rows
	}
	h.rows = New(h.eng, Options{Least: least, IDsBytes: h.ids, WrittenBytes: h.ids, OpenedBytes: h.ids})
	h.rows.limits = h.limits
	if h.long {
		h.rows.ListLong([]int64{testWindow})
	}
}

func (h *history) run(steps int) {
	for range steps {
		switch n := h.rng.IntN(26); {
		case n < 5:
			h.writeNew()
		case n < 8:
			h.writeBetter()
		case n < 9:
			h.reopen()
		case n < 10 && h.rng.IntN(2) == 0:
			h.compact(pick(h.rng, rowTables[1:]), h.metric())
		case n < 10:
			h.outdone(pick(h.rng, rowTables), h.metric(), h.rng.IntN(3) > 0)
		case n < 15:
			h.scan()
		case n < 18:
			h.queryLabels()
		case n < 21:
			h.locatedChunks()
		default:
			h.chunksOf()
		}
	}
	for metric := range h.all {
		for _, table := range rowTables {
			h.outdone(table, metric, true)
			if table != engine.Raw && h.long {
				h.compact(table, metric)
			}
			h.compare(engine.Range{Table: table, Partition: partitionOf(metric)})
			require.NoError(h.t, h.rows.CheckFilters(h.t.Context(), table, partitionOf(metric), func(err error) {
				require.NoError(h.t, err)
			}))
		}
	}
}

func (h *history) metric() string { return pick(h.rng, []string{"up", "up", "http_requests_total"}) }

// some returns some series of a metric, sorted: series with neighboring ids, or random series.
func (h *history) some(metric string) (some []testSeries) {
	all := h.all[metric]
	if h.rng.IntN(2) == 0 {
		from := h.rng.IntN(len(all))
		all = all[from : from+h.rng.IntN(len(all)-from)+1]
	}
	one := 1 + h.rng.IntN(6)
	for _, s := range all {
		if h.rng.IntN(one) == 0 {
			some = append(some, s)
		}
	}
	return some
}

// write writes batches to both engines. A raw chunk is never rewritten with the same value: rewriting a key of raw adds
// deletes.
func (h *history) write(batches []engine.Batch) {
	for i := range batches {
		b := &batches[i]
		if b.Table != engine.Raw {
			continue
		}
		b.Mutations = slices.DeleteFunc(b.Mutations, func(m engine.Mutation) bool {
			raw, err := format.ParseRawChunk(m.Value)
			require.NoError(h.t, err)
			key, n := fmt.Sprint(b.Partition, m.Clustering), raw.Exempt.Count()
			worse := h.deletes[key] > n
			h.deletes[key] = max(h.deletes[key], n)
			return worse
		})
	}
	require.NoError(h.t, h.plain.Write(h.t.Context(), batches))
	require.NoError(h.t, h.rows.Write(h.t.Context(), batches))
}

// writeNew writes rows of series, most of them with labels.
func (h *history) writeNew() {
	var batches []engine.Batch
	for range 1 + h.rng.IntN(3) {
		table, metric := pick(h.rng, rowTables), h.metric()
		b := engine.Batch{Table: table, Partition: partitionOf(metric)}
		slots := h.slots()
		for _, s := range h.some(metric) {
			if h.rng.IntN(6) > 0 {
				b.Mutations = append(b.Mutations, s.labelsRow(table))
			}
			for _, slot := range slots {
				b.Mutations = append(b.Mutations, h.chunks(&s, table, slot)...)
			}
			if len(b.Mutations) > 0 && h.rng.IntN(40) == 0 {
				batches = append(batches, b)
				b.Mutations = nil
			}
		}
		if h.rng.IntN(4) == 0 {
			h.rng.Shuffle(len(b.Mutations), func(i, j int) { b.Mutations[i], b.Mutations[j] = b.Mutations[j], b.Mutations[i] })
		}
		batches = append(batches, b)
	}
	if h.rng.IntN(3) == 0 {
		batches = append(batches, engine.Batch{Table: engine.Metadata, Partition: engine.Key{engine.Int(testWindow), engine.Text("tenant")},
			Mutations: []engine.Mutation{{Clustering: engine.Key{engine.Text("up"), engine.Text(noID)}, Timestamp: 1, Value: []byte("gauge")}}})
	}
	h.write(batches)
}

func (h *history) slots() (slots []int) {
	for slot := range historySlots {
		if h.rng.IntN(3) == 0 {
			slots = append(slots, slot)
		}
	}
	return slots
}

// chunks returns mutations that write chunks of a series in a slot.
func (h *history) chunks(s *testSeries, table *engine.Table, slot int) (rows []engine.Mutation) {
	if h.rng.IntN(8) == 0 {
		return nil
	}
	if table != engine.Raw {
		return append(rows, s.rollups(table, slot, 1+uint64(h.rng.IntN(4))))
	}
	switch h.rng.IntN(12) {
	case 0:
		rows = append(rows, s.exempt(slot))
	case 1:
		rows = append(rows, s.rawChunk(slot, 1, 0), s.rawChunk(slot, 0, 0))
	case 2:
		rows = append(rows, s.rawChunk(slot, 2, 0), s.exemplars(slot))
	default:
		rows = append(rows, s.rawChunk(slot, 0, 0))
	}
	return rows
}

// writeBetter rewrites rows of series as cleaning does, whether they exist or not.
func (h *history) writeBetter() {
	table, metric := pick(h.rng, rowTables), h.metric()
	b := engine.Batch{Table: table, Partition: partitionOf(metric)}
	slots := h.slots()
	for _, s := range h.some(metric) {
		for _, slot := range slots {
			switch {
			case table == engine.Raw:
				b.Mutations = append(b.Mutations, s.rawChunk(slot, h.rng.IntN(3), 1+h.rng.IntN(3)))
			default:
				b.Mutations = append(b.Mutations, s.rollups(table, slot, 2+uint64(h.rng.IntN(7))))
			}
		}
	}
	h.write([]engine.Batch{b})
}

// outdone removes the superseded entries of some or all series, and requires that none are left.
func (h *history) outdone(table *engine.Table, metric string, all bool) {
	ids := map[string]bool{}
	series := h.all[metric]
	if !all {
		series = h.some(metric)
	}
	for _, s := range series {
		ids[s.id] = true
	}
	partition := partitionOf(metric)
	rows, pages, err := h.rows.Outdone(h.t.Context(), table, partition, ids)
	require.NoError(h.t, err)
	stampCopies(rows)
	for _, b := range append(rows, pages...) {
		require.NoError(h.t, h.eng.Write(h.t.Context(), []engine.Batch{b}))
		if h.rng.IntN(10) == 0 {
			h.scan()
		}
	}
	requireNothingOutdone(h.t, h.eng, table, partition, ids)
	rows, pages, err = h.rows.Outdone(h.t.Context(), table, partition, ids)
	require.NoError(h.t, err)
	require.Empty(h.t, rows)
	require.Empty(h.t, pages)
}

// compact builds the long chunks of a partition, and requires that all rows and entries replaced by long chunks are
// removed.
func (h *history) compact(table *engine.Table, metric string) {
	require.NoError(h.t, h.rows.BeginLong(h.t.Context(), testWindow))
	h.long = true
	c := compactionOf(table, metric)
	c.Between = func() {
		if h.rng.IntN(4) == 0 {
			h.scan()
		}
	}
	_, err := h.rows.Compact(h.t.Context(), c)
	require.NoError(h.t, err)
	requireAllJoined(h.t, h.eng, table, partitionOf(metric))
	done, err := h.rows.Compact(h.t.Context(), c)
	require.NoError(h.t, err)
	require.Zero(h.t, done, "there is nothing left")
}

// requireNothingOutdone compares all entries of some series with the rows of the same keys, and entries of rollups with
// each other.
func requireNothingOutdone(t testing.TB, eng engine.Engine, table *engine.Table, partition engine.Key, ids map[string]bool) {
	t.Helper()
	r := New(eng, Options{})
	of := tablesOf(table)
	rows := map[string]string{}
	for _, row := range mustRead(t, eng.Scan, engine.Range{Table: table, Partition: partition, From: engine.Key{engine.Int(format.KindChunk)}}) {
		rows[fmt.Sprint(row.key)] = row.value
	}
	ranks := map[string]uint64{}
	for _, p := range pagesIn(t, eng, table, partition) {
		there, err := r.open(context.Background(), of, partition, p)
		require.NoError(t, err)
		require.True(t, there)
		for i := range p.page.Len() {
			value, err := p.page.AppendValue(nil, i)
			require.NoError(t, err)
			if p.kind == format.KindLabels || !ids[p.id(i)] {
				continue
			}
			key := format.RollupKey(p.id(i), p.start)
			if table == engine.Raw {
				key = format.ChunkKey(p.id(i), p.start, versionOf(value))
			}
			if rank, twice := ranks[fmt.Sprint(key)]; twice && table != engine.Raw {
				require.Equal(t, rank, rollup.VersionOf(value), "an entry that another one outdoes is left")
			}
			ranks[fmt.Sprint(key)] = rollup.VersionOf(value)
			row, ok := rows[fmt.Sprint(key)]
			if !ok {
				continue
			}
			if table == engine.Raw {
				raw, err := format.ParseRawChunk([]byte(row))
				require.NoError(t, err)
				require.Zero(t, raw.Exempt.Count(), "an entry that a row outdoes is left")
			} else {
				require.LessOrEqual(t, rollup.VersionOf([]byte(row)), rollup.VersionOf(value), "an entry that a row outdoes is left")
			}
		}
	}
}

// scan compares the rows of a random range in both engines.
func (h *history) scan() {
	table, metric := pick(h.rng, rowTables), h.metric()
	r := engine.Range{Table: table, Partition: partitionOf(metric), KeysOnly: h.rng.IntN(4) == 0}
	if h.rng.IntN(3) > 0 {
		r.From = h.bound(table, metric)
	}
	if h.rng.IntN(3) > 0 {
		r.To = h.bound(table, metric)
	}
	if h.rng.IntN(3) == 0 && len(r.From) > 0 { // A range as readers use it: of one kind and start, or of one series.
		r.To = slices.Clone(r.From)
		if last := len(r.To) - 1; last > 0 {
			r.To[last] = h.bound(table, metric)[0]
			r.To[last] = h.field(table, last, metric)
		}
	}
	if h.rng.IntN(4) == 0 {
		r.Limit = 1 + h.rng.IntN(30)
	}
	if h.rng.IntN(2) == 0 {
		r.Damaged = func(d engine.Damage) { require.Fail(h.t, "damage", "%v", d.Err) }
	}
	h.compare(r)
}

// chunksOf compares the chunks with random starts that both engines return for random series: all or few series of a
// metric, or series that may not exist.
func (h *history) chunksOf() {
	table, metric := pick(h.rng, rowTables), h.metric()
	of := tablesOf(table)
	w := Wanted{
		Table: table, Partition: partitionOf(metric), KeysOnly: h.rng.IntN(4) == 0,
		PassOver: pick(h.rng, []int{0, 1, 7, 1000}), First: h.field(table, of.start, metric).Int,
	}
	w.Last = w.First + pick(h.rng, []int64{0, startOf(1) - startOf(0), startOf(historySlots) - startOf(0)})
	if h.rng.IntN(2) == 0 {
		w.Damaged = func(d engine.Damage) { require.Fail(h.t, "damage", "%v", d.Err) }
	}
	ids := map[string]bool{h.field(table, of.series, metric).Text: true}
	if h.rng.IntN(3) > 0 {
		for _, s := range h.some(metric) {
			ids[s.id] = true
		}
	}
	w.IDs = slices.Sorted(maps.Keys(ids))
	h.requireChunks(w)
	if table == engine.Raw {
		h.requireBounded(w)
		h.requireSpans(w)
	}
}

// requireChunks checks that both engines return the same wanted chunks.
func (h *history) requireChunks(w Wanted) {
	table, of, ids := w.Table, tablesOf(w.Table), map[string]bool{}
	for _, id := range w.IDs {
		ids[id] = true
	}
	chunks := engine.Key{engine.Int(format.KindChunk)}
	want, err := readAll(h.plain.Scan, engine.Range{Table: table, Partition: w.Partition, From: chunks, To: chunks, KeysOnly: w.KeysOnly})
	require.NoError(h.t, err)
	want = slices.DeleteFunc(want, func(row testRow) bool {
		start := row.key[of.start].Int
		return !ids[row.key[of.series].Text] || start < w.First || start > w.Last
	})
	w.NoVersions, w.Remember = h.rng.IntN(2) == 0, h.rng.IntN(3) > 0
	w.Long = table != engine.Raw && !w.KeysOnly && h.rng.IntN(2) == 0
	times := 1
	if w.Remember {
		times += h.rng.IntN(2)
	}
	for range times {
		got, err := readAll(func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return h.rows.Chunks(ctx, w) }, engine.Range{})
		require.NoError(h.t, err)
		if w.Long {
			got = takeApart(h.t, got, w.First, w.Last)
		}
		if table == engine.Raw && w.NoVersions && len(got) == len(want) {
			sameVersions(want, got)
		}
		requireRows(h.t, want, got, "%s: %d series, from %d to %d, keys only %v, pass over %d", table, len(ids), w.First, w.Last, w.KeysOnly, w.PassOver)
	}
}

// sameVersions copies the version of the corresponding row of want to each row of got that has none.
func sameVersions(want, got []testRow) {
	for i, row := range got {
		if last := len(row.key) - 1; row.key[last].Text == "" {
			row.key[last] = want[i].key[last]
		}
	}
}

// bound returns a random key prefix.
func (h *history) bound(table *engine.Table, metric string) (key engine.Key) {
	for i := range 1 + h.rng.IntN(len(table.Clustering)) {
		key = append(key, h.field(table, i, metric))
	}
	return key
}

func (h *history) field(table *engine.Table, i int, metric string) engine.Value {
	switch of := tablesOf(table); i {
	case 0:
		return engine.Int(int64(h.rng.IntN(4)))
	case of.start:
		return engine.Int(pick(h.rng, []int64{0, startOf(h.rng.IntN(historySlots)), startOf(h.rng.IntN(historySlots)), startOf(h.rng.IntN(historySlots)) + 1}))
	case of.series:
		if h.rng.IntN(8) == 0 {
			return engine.Text(
				pick(h.rng, []string{noID, lastID, bucketFirst(pick(h.rng, h.all[metric]).id, h.rng.IntN(9))}),
			)
		}
		return engine.Text(pick(h.rng, h.all[metric]).id)
	}
	s := pick(h.rng, h.all[metric])
	return engine.Text(pick(h.rng, []string{noID, lastID, s.rawChunk(h.rng.IntN(historySlots), h.rng.IntN(3), 0).Clustering[3].Text}))
}

func (h *history) compare(r engine.Range) {
	want, err := readAll(h.plain.Scan, r)
	require.NoError(h.t, err)
	got, err := readAll(h.rows.Scan, r)
	require.NoError(h.t, err)
	requireRows(h.t, want, got, "%s from %v to %v, keys only %v, limit %d", r.Table, r.From, r.To, r.KeysOnly, r.Limit)
}
