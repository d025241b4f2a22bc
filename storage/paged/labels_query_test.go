package paged

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/soak"
)

// lookUp is a result of Candidates that a reader keeps while others write.
type lookUp struct {
	table   *engine.Table
	metric  string
	ids     []string
	located *Located
}

// chargeNothing charges nothing for rows.
func chargeNothing(int) error { return nil }

// label returns the condition that a label has one of these values.
func label(name string, values ...string) page.LabelCondition {
	return page.LabelCondition{
		Name: name, Values: values, Matches: func(v string) bool { return slices.Contains(values, v) },
	}
}

// conditions returns random conditions on the labels of a metric's series.
func (h *history) conditions(metric string) (all []page.LabelCondition) {
	var instances []string
	for range 1 + h.rng.IntN(1+h.rng.IntN(40)) {
		instances = append(instances, pick(h.rng, h.all[metric]).labels.Get("instance"))
	}
	switch h.rng.IntN(6) {
	case 0:
		all = append(all, page.LabelCondition{Name: "job", Matches: func(v string) bool { return v != "" }})
	case 1:
		all = append(all, page.LabelCondition{Name: "job", Matches: func(v string) bool { return v == "" }})
	case 2:
		all = append(all, label("job", "node", "nodenode"))
	}
	if h.rng.IntN(8) > 0 {
		all = append(all, label("instance", instances...))
	}
	return all
}

// queryLabels checks that a search by filters finds the same labels rows as the plain engine has, and keeps the result
// in lookUps.
func (h *history) queryLabels() {
	table, metric := pick(h.rng, rowTables), h.metric()
	s := page.NewSelector(h.conditions(metric))
	c, err := h.rows.Candidates(h.t.Context(), LabelsQuery{
		Table: table, Partition: partitionOf(metric), Selector: s,
		BadFilter: func(err error) { require.NoError(h.t, err) },
	})
	require.NoError(h.t, err)
	require.NotNil(h.t, c, "filters aren't used, though all pages have some")
	got, err := c.Rows(h.t.Context(), chargeNothing, func(d engine.Damage) { require.Fail(h.t, "damage", "%v", d.Err) })
	require.NoError(h.t, err)
	var want []LabelsRow
	kind := engine.Key{engine.Int(format.KindLabels)}
	for _, row := range mustRead(h.t, h.plain.Scan, engine.Range{
		Table: table, Partition: partitionOf(metric), From: kind, To: kind,
	}) {
		if s.MatchesRow([]byte(row.value)) {
			want = append(want, LabelsRow{row.key[tablesOf(table).series].Text, []byte(row.value)})
		}
	}
	require.Equal(h.t, want, got)
	found := lookUp{table: table, metric: metric, located: c.Located()}
	for _, row := range got {
		found.ids = append(found.ids, row.ID)
	}
	if len(got) > 0 {
		h.lookUps = append(h.lookUps, found)
	}
}

// locatedChunks checks that both engines return the same chunks for the series in lookUps.
func (h *history) locatedChunks() {
	if len(h.lookUps) == 0 {
		return
	}
	l := pick(h.rng, h.lookUps)
	ids := slices.Clone(l.ids)
	if h.rng.IntN(2) == 0 {
		h.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		ids = ids[:1+h.rng.IntN(len(ids))]
		slices.Sort(ids)
	}
	h.requireChunks(Wanted{
		Table: l.table, Partition: partitionOf(l.metric), PassOver: 7, First: startOf(h.rng.IntN(2)),
		Last: startOf(1 + h.rng.IntN(historySlots)), IDs: ids, Located: l.located,
	})
}

func stripFilters(t testing.TB, eng engine.Engine, table *engine.Table, partition engine.Key) {
	t.Helper()
	pages := tablesOf(table).pages
	kind := engine.Key{engine.Int(format.KindFilter)}
	for _, row := range mustRead(t, eng.Scan, engine.Range{
		Table: pages, Partition: partition, From: kind, To: kind, KeysOnly: true,
	}) {
		require.NoError(t, eng.Write(t.Context(), []engine.Batch{
			{Table: pages, Partition: partition, Mutations: []engine.Mutation{
				{Op: engine.Delete, Clustering: row.key, Timestamp: 1 << 60},
			}},
		}))
	}
}

// rowsWithFilters returns Rows whose labels pages are small and have filters with labels.
func rowsWithFilters(eng engine.Engine) *Rows {
	r := rowsOf(eng)
	r.limits.bucket, r.limits.fewest, r.limits.filtered = 16, 1, 1
	return r
}

// find returns the ids of the series that are found by filters.
func find(
	t testing.TB, r *Rows, table *engine.Table, metric string, conditions ...page.LabelCondition,
) (c *Candidates, ids []string) {
	t.Helper()
	c, err := r.Candidates(t.Context(), LabelsQuery{
		Table: table, Partition: partitionOf(metric), Selector: page.NewSelector(conditions),
		BadFilter: func(err error) { require.NoError(t, err) },
	})
	require.NoError(t, err)
	if c == nil {
		return nil, nil
	}
	rows, err := c.Rows(t.Context(), chargeNothing, nil)
	require.NoError(t, err)
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return c, ids
}

// TestFiltersPassFewPages requires that a search for a series opens the pages that contain the series, and very few
// others.
func TestFiltersPassFewPages(t *testing.T) {
	for name, open := range engines {
		for _, table := range rowTables {
			t.Run(name+"/"+table.Name, func(t *testing.T) {
				eng := open(t)
				defer func() { require.NoError(t, eng.Close()) }()
				series := seriesOf("up", 3000)
				r := rowsWithFilters(eng)
				require.NoError(t, r.Write(t.Context(), splitBatch(newSeriesBatch(table, series, 1))))
				opened := 0
				for i := range 50 {
					c, ids := find(t, r, table, "up", label("instance", series[i*60].labels.Get("instance")))
					require.Equal(t, []string{series[i*60].id}, ids)
					require.Greater(t, c.AllPages, 100)
					require.Equal(t, len(series), c.AllSeries)
					opened += c.Pages()
				}
				require.GreaterOrEqual(t, opened, 50)
				require.Less(t, opened, 300, "of 50 times more than 100")
				require.NoError(t, r.CheckFilters(t.Context(), table, partitionOf("up"), func(err error) {
					require.NoError(t, err)
				}))
			})
		}
	}
}

// TestLocatedOpensFewPages requires that the chunks of few series are read without reading labels pages again.
func TestLocatedOpensFewPages(t *testing.T) {
	counting, scans := countingScans(memory.New())
	series := seriesOf("up", 3000)
	require.NoError(t, rowsWithFilters(counting).Write(t.Context(), splitBatch(newSeriesBatch(engine.Raw, series, 1))))
	r := rowsWithFilters(counting)
	c, ids := find(t, r, engine.Raw, "up",
		label("instance", series[7].labels.Get("instance"), series[1900].labels.Get("instance")))
	require.Len(t, ids, 2)
	w := Wanted{
		Table: engine.Raw, Partition: partitionOf("up"), IDs: ids, First: startOf(1), Last: startOf(1), PassOver: 20,
	}
	read := func(w Wanted) (rows []testRow, n int) {
		r := rowsWithFilters(counting)
		before := *scans
		rows, err := readAll(
			func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return r.Chunks(ctx, w) },
			engine.Range{},
		)
		require.NoError(t, err)
		return rows, *scans - before
	}
	want, without := read(w)
	w.Located = c.Located()
	got, with := read(w)
	requireRows(t, want, got, "located")
	require.Len(t, got, 2)
	require.LessOrEqual(t, with+2, without, "the labels page of each isn't read")
	require.Positive(t, w.Located.Bytes())

	// Pages that were opened with a Located are cached separately.
	for range 2 {
		got, err := readAll(
			func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return r.Chunks(ctx, w) },
			engine.Range{},
		)
		require.NoError(t, err)
		requireRows(t, want, got, "located, again")
	}
	all := Wanted{Table: engine.Raw, Partition: partitionOf("up"), First: startOf(1), Last: startOf(1), PassOver: 20}
	for _, s := range series {
		all.IDs = append(all.IDs, s.id)
	}
	one := all
	for i, id := range all.IDs {
		if i%100 == 7 {
			one.IDs = []string{id}
			got, err := readAll(
				func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return r.Chunks(ctx, one) },
				engine.Range{},
			)
			require.NoError(t, err)
			require.Len(t, got, 1)
		}
	}
	got, err := readAll(
		func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return r.Chunks(ctx, all) },
		engine.Range{},
	)
	require.NoError(t, err)
	require.Len(t, got, len(series))
}

// TestPagesThatLostTheirFilters requires that all labels are read if pages have no filters.
func TestPagesThatLostTheirFilters(t *testing.T) {
	for _, table := range rowTables {
		eng := memory.New()
		series := seriesOf("up", 300)
		require.NoError(t, rowsWithFilters(eng).Write(t.Context(), splitBatch(newSeriesBatch(table, series, 1))))
		stripFilters(t, eng, table, partitionOf("up"))
		c, _ := find(t, rowsWithFilters(eng), table, "up", label("instance", series[1].labels.Get("instance")))
		require.Nil(t, c)
	}
}

// openFilters counts the filters of metric up that contain no labels.
func openFilters(t testing.TB, eng engine.Engine, table *engine.Table) (n int) {
	of, kind := tablesOf(table), engine.Key{engine.Int(format.KindFilter)}
	for row, err := range eng.Scan(context.Background(), engine.Range{
		Table: of.pages, Partition: partitionOf("up"), From: kind, To: kind,
	}) {
		require.NoError(t, err)
		if bytes.Equal(row.Value, page.AppendOpenFilter(nil, int(row.Value[1])+1)) {
			n++
		}
	}
	return n
}

// TestFewSeriesHaveOpenFilters requires that the filters of small writes contain no labels, and that their pages are
// opened.
func TestFewSeriesHaveOpenFilters(t *testing.T) {
	eng := memory.New()
	r := rowsOf(eng)
	series := seriesOf("up", 900)
	require.NoError(t, r.Write(t.Context(), splitBatch(newSeriesBatch(engine.Raw, series, 1))))
	c, ids := find(t, r, engine.Raw, "up", label("instance", series[1].labels.Get("instance")))
	require.Equal(t, []string{series[1].id}, ids)
	require.Equal(t, c.AllPages, c.Pages())
	require.Equal(t, c.AllPages, openFilters(t, eng, engine.Raw))
}

// TestDamagedFilters requires that an unreadable or invalid filter is named, and its page opened.
func TestDamagedFilters(t *testing.T) {
	for _, table := range rowTables {
		eng := memory.New()
		series := seriesOf("up", 600)
		require.NoError(t, rowsWithFilters(eng).Write(t.Context(), splitBatch(newSeriesBatch(table, series, 1))))
		pages, kind := tablesOf(table).pages, engine.Key{engine.Int(format.KindFilter)}
		rng := rand.New(rand.NewPCG(1, 2))
		for _, row := range mustRead(t, eng.Scan, engine.Range{
			Table: pages, Partition: partitionOf("up"), From: kind, To: kind,
		}) {
			value := []byte(row.value)
			value[rng.IntN(len(value))] ^= 1 + byte(rng.IntN(255))
			require.NoError(t, eng.Write(t.Context(), []engine.Batch{
				{Table: pages, Partition: partitionOf("up"), Mutations: []engine.Mutation{
					{Clustering: row.key, Timestamp: 1 << 60, Value: value},
				}},
			}))
		}
		named := 0
		c, err := rowsWithFilters(eng).Candidates(t.Context(), LabelsQuery{
			Table: table, Partition: partitionOf("up"),
			Selector: page.NewSelector([]page.LabelCondition{label("instance", series[5].labels.Get("instance"))}),
			BadFilter: func(err error) {
				require.ErrorIs(t, err, engine.ErrCorrupt)
				require.ErrorContains(t, err, "kind 9")
				named++
			},
		})
		require.NoError(t, err)
		require.Equal(t, c.AllPages, named)
		require.Equal(t, c.AllPages, c.Pages())
		rows, err := c.Rows(t.Context(), chargeNothing, nil)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, series[5].id, rows[0].ID)
		problems := 0
		require.NoError(t, rowsWithFilters(eng).CheckFilters(t.Context(), table, partitionOf("up"), func(err error) {
			require.ErrorContains(t, err, "its filter")
			problems++
		}))
		require.Equal(t, named, problems)
	}
}

// TestCheckFindsFiltersThatAreNotThere checks that CheckFilters reports a labels page whose filter was removed, and a
// filter whose labels page was removed.
func TestCheckFindsFiltersThatAreNotThere(t *testing.T) {
	eng := memory.New()
	require.NoError(
		t, rowsWithFilters(eng).Write(t.Context(), splitBatch(newSeriesBatch(engine.Raw, seriesOf("up", 600), 1))),
	)
	pages := pagesIn(t, eng, engine.Raw, partitionOf("up"))
	remove := func(kind int64, p *heldPage) {
		require.NoError(t, eng.Write(t.Context(), []engine.Batch{
			{Table: engine.RawPages, Partition: partitionOf("up"), Mutations: []engine.Mutation{
				{
					Op: engine.Delete, Clustering: rawTables.pageKey(kind, 0, p.bits, p.first, p.version),
					Timestamp: 1 << 60,
				},
			}},
		}))
	}
	remove(format.KindFilter, pages[0])
	remove(format.KindLabels, pages[3])
	var problems []string
	require.NoError(t, rowsWithFilters(eng).CheckFilters(t.Context(), engine.Raw, partitionOf("up"), func(err error) {
		problems = append(problems, err.Error())
	}))
	require.Len(t, problems, 2)
	require.Contains(t, problems[0], "a labels page without a filter")
	require.Contains(t, problems[1], "a filter without a labels page")
}

// TestFlippedBytesUnderFilters flips bytes of Pebble's files. Series that filters don't find must be within named
// damage.
func TestFlippedBytesUnderFilters(t *testing.T) {
	disk := pebble.NewCrashableFS()
	eng := openPebbleOn(t, disk)
	series := seriesOf("up", 2000)
	require.NoError(t, rowsWithFilters(eng).Write(t.Context(), splitBatch(newSeriesBatch(engine.Raw, series, 1))))
	require.NoError(t, eng.(*pebble.Engine).CompactAll(t.Context()))
	job := label("job", "node", "nodenode")
	_, want := find(t, rowsWithFilters(eng), engine.Raw, "up", job)
	require.Len(t, want, 1000)
	require.NoError(t, eng.Close())
	rng := rand.New(rand.NewPCG(1, 9))
	badFilters, missed := 0, 0
	for range soak.Fewer(40) {
		fs := disk.Crash(0, rng)
		flipByte(t, fs, rng)
		eng := openPebbleOn(t, fs)
		named := 0
		c, err := rowsWithFilters(eng).Candidates(t.Context(), LabelsQuery{
			Table: engine.Raw, Partition: partitionOf("up"), Selector: page.NewSelector([]page.LabelCondition{job}),
			BadFilter: func(err error) {
				require.ErrorIs(t, err, engine.ErrCorrupt)
				named++
			},
		})
		require.NoError(t, err)
		if c == nil {
			require.Positive(t, named)
			badFilters++
		} else {
			rows, err := c.Rows(t.Context(), chargeNothing, func(d engine.Damage) {
				require.ErrorIs(t, d.Err, engine.ErrCorrupt)
				named++
			})
			require.NoError(t, err)
			var got []string
			for _, row := range rows {
				got = append(got, row.ID)
			}
			if named == 0 {
				require.Equal(t, want, got)
			} else if len(got) < len(want) {
				missed++
			}
		}
		require.NoError(t, eng.Close())
	}
	require.Positive(t, missed)
	require.Positive(t, badFilters)
}

// TestFiltersOfWritesInPart requires that each labels page has its filter and the series are found, for any subset of
// applied batches.
func TestFiltersOfWritesInPart(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	series := seriesOf("up", 2000)
	partial := 0
	for range 20 {
		inner := memory.New()
		r := rowsWithFilters(faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && rng.IntN(2) == 0 {
				return faultengine.Fail(nil)
			}
			return faultengine.Pass()
		}))
		r.limits.batchBytes = 20_000
		if r.Write(t.Context(), splitBatch(newSeriesBatch(engine.Raw, series, 1, 2))) != nil {
			partial++
		}
		after := rowsWithFilters(inner)
		require.NoError(t, after.CheckFilters(t.Context(), engine.Raw, partitionOf("up"), func(err error) {
			require.NoError(t, err)
		}))
		kind := engine.Key{engine.Int(format.KindLabels)}
		s, want := page.NewSelector([]page.LabelCondition{label("job", "node")}), []string(nil)
		for _, row := range mustRead(t, after.Scan, engine.Range{
			Table: engine.Raw, Partition: partitionOf("up"), From: kind, To: kind,
		}) {
			if s.MatchesRow([]byte(row.value)) {
				want = append(want, row.key[2].Text)
			}
		}
		c, got := find(t, after, engine.Raw, "up", label("job", "node"))
		require.NotNil(t, c)
		require.Equal(t, want, got)
	}
	require.Positive(t, partial)
}

// TestRowsAreCharged requires that a search that finds too many rows ends, even if it reports damage.
func TestRowsAreCharged(t *testing.T) {
	eng := memory.New()
	series := seriesOf("up", 300)
	require.NoError(
		t, rowsWithFilters(eng).Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series[:200], 1)}),
	)
	require.NoError(t, eng.Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series[200:], 1)}))
	size := 0
	for i, s := range series {
		if s.labels.Get("job") == "node" {
			size += len(s.id) + len(series[i].labelsRow(engine.Raw).Value)
		}
	}
	tooMuch := errors.New("too much")
	for limit, want := range map[int]error{size: nil, size - 1: tooMuch, 100: tooMuch} {
		c, _ := find(t, rowsWithFilters(eng), engine.Raw, "up", label("job", "node"))
		require.NotNil(t, c)
		c, err := rowsWithFilters(eng).Candidates(t.Context(), c.LabelsQuery)
		require.NoError(t, err)
		sum := 0
		_, err = c.Rows(t.Context(), func(n int) error {
			if sum += n; sum > limit {
				return tooMuch
			}
			return nil
		}, func(d engine.Damage) { require.Fail(t, "damage", "%v", d.Err) })
		require.ErrorIs(t, err, want)
	}
}

// TestSeriesOfRowsAndPages requires that series with labels in rows, in pages, and in both are found once.
func TestSeriesOfRowsAndPages(t *testing.T) {
	eng := memory.New()
	r := rowsWithFilters(eng)
	series := seriesOf("up", 300)
	require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series[:200], 1)}))
	require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series[50:100], 2)}))
	require.NoError(t, eng.Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series[150:], 3)}))
	var want []string
	for _, s := range series {
		if s.labels.Get("job") == "node" {
			want = append(want, s.id)
		}
	}
	_, ids := find(t, r, engine.Raw, "up", label("job", "node"))
	require.Equal(t, want, ids)
	require.True(t, slices.IsSortedFunc(ids, cmp.Compare))
	_, ids = find(t, r, engine.Raw, "down", label("job", "node"))
	require.Empty(t, ids)
}
