package paged

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
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

// damagedPages returns a partition whose series have chunks of two slots, all in pages.
func damagedPages(t testing.TB, table *engine.Table) (eng *memory.Engine, all []testRow, pages []*heldPage) {
	eng = memory.New()
	r := New(eng, Options{Least: 2})
	r.limits.entries = 10
	require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(table, seriesOf("up", 35), 1, 2)}))
	return eng, mustRead(t, r.Scan,
		engine.Range{Table: table, Partition: partitionOf("up")}), pagesIn(t, eng, table, partitionOf("up"))
}

// requireOthers reads a partition with unreadable pages. The reported damage must name each of them, and all other rows
// must be read.
func requireOthers(t *testing.T, eng engine.Engine, table *engine.Table, all []testRow, lost func(row testRow) bool,
	named ...string) {
	t.Helper()
	whole := engine.Range{Table: table, Partition: partitionOf("up")}
	_, err := readAll(New(eng, Options{}).Scan, whole)
	require.ErrorIs(t, err, engine.ErrCorrupt)
	for _, name := range []string{table.Name + "_pages", `tenant "tenant"`, `metric "up"`} {
		require.ErrorContains(t, err, name)
	}
	var damage []string
	whole.Damaged = func(d engine.Damage) {
		require.ErrorIs(t, d.Err, engine.ErrCorrupt)
		require.Nil(t, d.After)
		require.Nil(t, d.Before)
		damage = append(damage, d.Err.Error())
	}
	want := slices.DeleteFunc(slices.Clone(all), lost)
	requireRows(t, want, mustRead(t, New(eng, Options{}).Scan, whole), "%v", damage)
	require.Len(t, damage, len(named), damage)
	for _, name := range named {
		require.True(t, slices.ContainsFunc(damage, func(d string) bool { return strings.Contains(d, name) }),
			"%s: %v", name, damage)
	}
}

// nameOf returns the name of a page in errors.
func nameOf(p *heldPage) string { return fmt.Sprintf("version %x)", p.version) }

// entriesOf returns the rows in a page.
func entriesOf(t testing.TB, eng engine.Engine, table *engine.Table, p *heldPage) map[string]bool {
	there, err := New(eng, Options{}).open(context.Background(), tablesOf(table), partitionOf("up"), p)
	require.NoError(t, err)
	require.True(t, there)
	ids := map[string]bool{}
	for i := range p.page.Len() {
		ids[fmt.Sprint(p.kind, p.start, p.id(i))] = true
	}
	return ids
}

func nameOfRow(table *engine.Table, row testRow) string {
	of := tablesOf(table)
	return fmt.Sprint(row.key[0].Int, row.key[of.start].Int, row.key[of.series].Text)
}

// TestFlippedPage requires that a page with a flipped byte is named, with its data pages, and that other rows are read.
func TestFlippedPage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, table := range rowTables {
		_, _, pages := damagedPages(t, table)
		for i := range pages {
			eng, all, pages := damagedPages(t, table)
			bad := pages[i]
			gone := entriesOf(t, eng, table, bad)
			named := []string{nameOf(bad)}
			for _, p := range pages {
				if p.kind == format.KindChunk && bad.kind == format.KindLabels {
					if entries := entriesOf(t, eng, table, p); p.page.Head().Labels == bad.version {
						named = append(named, nameOf(p))
						for name := range entries {
							gone[name] = true
						}
					}
				}
			}
			value := slices.Clone(bad.value)
			value[rng.IntN(len(value))] ^= byte(1 << rng.IntN(8))
			overwrite(t, eng, table, bad, bad.first, value)
			requireOthers(t, eng, table, all, func(row testRow) bool { return gone[nameOfRow(table, row)] }, named...)
		}
	}
}

// overwrite replaces the value of a page.
func overwrite(t testing.TB, eng engine.Engine, table *engine.Table, p *heldPage, first string, value []byte) {
	of := tablesOf(table)
	require.NoError(t, eng.Write(context.Background(), []engine.Batch{
		{Table: of.pages, Partition: partitionOf("up"), Mutations: []engine.Mutation{{
			Clustering: of.pageKey(p.kind, p.start, p.bits, first, p.version), Timestamp: 1 << 60, Value: value,
		}}},
	}))
}

func remove(t testing.TB, eng engine.Engine, table *engine.Table, p *heldPage) {
	of := tablesOf(table)
	require.NoError(t, eng.Write(context.Background(), []engine.Batch{
		{Table: of.pages, Partition: partitionOf("up"), Mutations: []engine.Mutation{{
			Op: engine.Delete, Clustering: of.pageKey(p.kind, p.start, p.bits, p.first, p.version), Timestamp: 1 << 60,
		}}},
	}))
}

// TestMissingLabelsPage requires that a data page without its labels page is named.
func TestMissingLabelsPage(t *testing.T) {
	for _, table := range rowTables {
		eng, all, pages := damagedPages(t, table)
		gone := entriesOf(t, eng, table, pages[0])
		require.EqualValues(t, format.KindLabels, pages[0].kind)
		var named []string
		for _, p := range pages {
			if p.kind == format.KindChunk {
				if entries := entriesOf(t, eng, table, p); p.page.Head().Labels == pages[0].version {
					named = append(named, nameOf(p))
					for name := range entries {
						gone[name] = true
					}
				}
			}
		}
		require.Len(t, named, 2)
		remove(t, eng, table, pages[0])
		requireOthers(t, eng, table, all, func(row testRow) bool { return gone[nameOfRow(table, row)] }, named...)
	}
}

// TestMisplacedPages requires that pages that don't match their key are named.
func TestMisplacedPages(t *testing.T) {
	none := func(testRow) bool { return false }
	for _, table := range rowTables {
		of := tablesOf(table)
		eng, all, pages := damagedPages(t, table)
		data := pages[len(pages)-1]
		require.EqualValues(t, format.KindChunk, data.kind)
		for about, place := range map[string]func(p *heldPage) (value []byte){
			"a page in the place of another kind": func(p *heldPage) []byte {
				p.kind, p.start, p.version = format.KindLabels, 0, lastID
				return data.value
			},
			"ids outside their bucket": func(p *heldPage) []byte {
				p.bits, p.version = 3, lastID
				p.first = bucketFirst(lastID, 3)
				p.kind, p.start = format.KindLabels, 0
				return pages[0].value
			},
			"a bucket that isn't one": func(p *heldPage) []byte {
				p.bits, p.first, p.version = 3, bucketFirst(lastID, 7), lastID
				p.kind, p.start = format.KindLabels, 0
				return pages[0].value
			},
			"an impossible level": func(p *heldPage) []byte {
				p.bits = 17
				return data.value
			},
			"a position without labels": func(p *heldPage) []byte {
				parsed, err := page.Parse(data.value)
				require.NoError(t, err)
				p.version = lastID
				return page.Append(nil, page.Head{Kind: of.data, Labels: parsed.Head().Labels, At: []byte{0, 200}}, [][]byte{{1}, {1}})
			},
		} {
			t.Log(about)
			p := *data
			value := place(&p)
			overwrite(t, eng, table, &p, p.first, value)
			named := nameOf(&p)
			if p.bits == 17 {
				named = "bits 17"
			}
			requireOthers(t, eng, table, all, none, named)
			ids := map[string]bool{}
			for _, row := range all {
				ids[row.key[of.series].Text] = true
			}
			rows, pages, err := New(eng, Options{}).Outdone(t.Context(), table, partitionOf("up"), ids)
			require.NoError(t, err, about)
			require.Empty(t, rows)
			require.Empty(t, pages)
			remove(t, eng, table, &p)
		}
	}
}

// TestErrorsEndScans requires that errors other than damage end a scan at any step.
func TestErrorsEndScans(t *testing.T) {
	for _, table := range rowTables {
		inner, all, _ := damagedPages(t, table)
		scans, fails := 0, 0
		eng := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if scans++; scans == fails {
				return faultengine.Fail(nil)
			}
			return faultengine.Pass()
		})
		read := func() error {
			scans = 0
			rows, err := readAll(New(eng, Options{}).Scan, engine.Range{Table: table, Partition: partitionOf("up"), Damaged: func(engine.Damage) {}})
			requireRows(t, all[:len(rows)], rows, "before an error")
			return err
		}
		require.NoError(t, read())
		all10 := scans
		require.Greater(t, all10, 8)
		for fails = 1; fails <= all10; fails++ {
			require.ErrorIs(t, read(), engine.ErrUnavailable, "scan %d of %d", fails, all10)
		}
	}
}

// gappy is an engine with a table with unreadable rows.
type gappy struct {
	engine.Engine
	table *engine.Table
	bad   func(key engine.Key) bool
}

var errGap = fmt.Errorf("%w: in a test", engine.ErrCorrupt)

func (g *gappy) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if r.Table != g.table {
		return g.Engine.Scan(ctx, r)
	}
	return func(yield func(engine.Row, error) bool) {
		var after engine.Key
		gap, n, limit := false, 0, r.Limit
		r.Limit = 0
		for row, err := range g.Engine.Scan(ctx, r) {
			switch {
			case err != nil:
				yield(row, err)
				return
			case g.bad(row.Clustering) && r.Damaged == nil:
				yield(engine.Row{}, errGap)
				return
			case g.bad(row.Clustering):
				gap = true
				continue
			case gap:
				r.Damaged(engine.Damage{After: after, Before: row.Clustering.Clone(), Err: errGap})
				gap = false
			}
			if after = row.Clustering.Clone(); !yield(row, nil) {
				return
			}
			if n++; n == limit {
				return
			}
		}
		if gap {
			r.Damaged(engine.Damage{After: after, Err: errGap})
		}
	}
}

// TestGapsOfRows requires that gaps are reported as by a single scan: each missing row is in a gap, no other row of the
// table is, and a gap is reported before the rows after it.
func TestGapsOfRows(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		table := rowTables[seed%3]
		inner := memory.New()
		r := New(inner, Options{Least: 2})
		r.limits = limits{entries: 6, bucket: 5, labelsBytes: 1 << 20, dataBytes: 1 << 20, entryBytes: 1 << 20, batchBytes: engine.MaxBatch, gatherBytes: 300, fewest: 1}
		series := seriesOf("up", 120)
		for i := range 3 { // Some series in rows, others in pages.
			b := newSeriesBatch(table, series[i*40:i*40+40], 1, 2)
			if i == 1 || rng.IntN(2) == 0 {
				require.NoError(t, r.Write(t.Context(), []engine.Batch{b}))
			}
			b.Mutations = slices.DeleteFunc(b.Mutations, func(engine.Mutation) bool { return rng.IntN(3) > 0 })
			require.NoError(t, inner.Write(t.Context(), []engine.Batch{b}))
		}
		whole := engine.Range{Table: table, Partition: partitionOf("up")}
		if rng.IntN(2) == 0 {
			whole.From = engine.Key{engine.Int(format.KindChunk)}
		}
		plain := mustRead(t, inner.Scan, whole)
		bad := map[string]bool{}
		for i := range plain {
			if rng.IntN(4) == 0 || i > 0 && bad[fmt.Sprint(plain[i-1].key)] && rng.IntN(3) > 0 {
				bad[fmt.Sprint(plain[i].key)] = true
			}
		}
		eng := &gappy{inner, table, func(key engine.Key) bool { return bad[fmt.Sprint(key)] }}
		requireGaps(t, eng, r.limits, whole, mustRead(t, r.Scan, whole), plain, bad)
	}
}

func requireGaps(t *testing.T, eng engine.Engine, l limits, whole engine.Range, all, plain []testRow, bad map[string]bool) {
	var gaps []engine.Damage
	var last engine.Key
	whole.Damaged = func(d engine.Damage) {
		require.ErrorIs(t, d.Err, errGap)
		if d.Before != nil && last != nil {
			require.Negative(t, engine.Compare(last, d.Before), "reported too late")
		}
		gaps = append(gaps, d)
	}
	r := New(eng, Options{})
	r.limits = l
	found := map[string]bool{}
	for row, err := range r.Scan(t.Context(), whole) {
		require.NoError(t, err)
		last = row.Clustering.Clone()
		found[fmt.Sprint(row.Clustering)] = true
		for _, d := range gaps[max(len(gaps)-1, 0):] {
			require.NotEqual(t, d.After, last)
		}
	}
	inGap := func(key engine.Key, d engine.Damage) bool {
		return (d.After == nil || engine.Compare(d.After, key) < 0) && (d.Before == nil || engine.Compare(key, d.Before) < 0)
	}
	for _, row := range all {
		if !found[fmt.Sprint(row.key)] {
			require.True(t, bad[fmt.Sprint(row.key)])
		}
	}
	for _, row := range plain {
		in := slices.IndexFunc(gaps, func(d engine.Damage) bool { return inGap(row.key, d) })
		require.Equal(t, bad[fmt.Sprint(row.key)], in >= 0, "%v, gaps %v", row, gaps)
	}
	require.LessOrEqual(t, len(gaps), len(bad))
	require.NotEmpty(t, gaps)
	whole.Damaged = nil
	_, err := readAll(r.Scan, whole)
	require.ErrorIs(t, err, errGap)
}

// TestGapsOfPages requires that damage of the table of pages is reported once, without keys, though both probes and
// reads encounter it.
func TestGapsOfPages(t *testing.T) {
	for _, table := range rowTables {
		inner, all, pages := damagedPages(t, table)
		for _, bad := range pages {
			if bad.kind != format.KindChunk {
				continue
			}
			gone := entriesOf(t, inner, table, bad)
			eng := &gappy{inner, tablesOf(table).pages, func(key engine.Key) bool { return key[pageVersion].Text == bad.version }}
			n := 0
			whole := engine.Range{Table: table, Partition: partitionOf("up"), Damaged: func(d engine.Damage) {
				require.Equal(t, engine.Damage{Err: errGap}, d)
				n++
			}}
			want := slices.DeleteFunc(slices.Clone(all), func(row testRow) bool { return gone[nameOfRow(table, row)] })
			requireRows(t, want, mustRead(t, New(eng, Options{}).Scan, whole), "without a page")
			require.Equal(t, 1, n)
			whole.Damaged = nil
			_, err := readAll(New(eng, Options{}).Scan, whole)
			require.ErrorIs(t, err, errGap)
		}
	}
}

// TestFlippedBytesOfPebble requires that after a byte of Pebble's files is flipped, a scan yields only rows that were
// written, and names damage if rows are missing.
func TestFlippedBytesOfPebble(t *testing.T) {
	disk := pebble.NewCrashableFS()
	eng := openPebbleOn(t, disk)
	series := seriesOf("up", 2000)
	r := rowsOf(eng)
	for _, table := range rowTables {
		require.NoError(t, r.Write(t.Context(), splitBatch(newSeriesBatch(table, series[:1500], 1, 2))))
		require.NoError(t, r.Write(t.Context(), []engine.Batch{{Table: table, Partition: partitionOf("up"), Mutations: betterOf(table, series[1000:1100])}}))
	}
	require.NoError(t, eng.(*pebble.Engine).CompactAll(t.Context()))
	want := map[*engine.Table][]testRow{}
	for _, table := range rowTables {
		want[table] = mustRead(t, r.Scan, engine.Range{Table: table, Partition: partitionOf("up")})
	}
	require.NoError(t, eng.Close())
	rng := rand.New(rand.NewPCG(1, 9))
	damaged := 0
	for range soak.Fewer(30) {
		fs := disk.Crash(0, rng)
		flipByte(t, fs, rng)
		eng := openPebbleOn(t, fs)
		for _, table := range rowTables {
			damaged += requireKnown(t, eng, table, want[table])
			requireWantedOrNamed(t, eng, table, want[table], series)
		}
		require.NoError(t, eng.Close())
	}
	require.Greater(t, damaged, soak.Fewer(5))
}

// requireWantedOrNamed reads the chunks of every third series. Each missing or different chunk must be within named
// damage.
func requireWantedOrNamed(t testing.TB, eng engine.Engine, table *engine.Table, rows []testRow, series []testSeries) {
	of := tablesOf(table)
	w := Wanted{Table: table, Partition: partitionOf("up"), Last: startOf(historySlots), PassOver: 3}
	for i := 0; i < len(series); i += 3 {
		w.IDs = append(w.IDs, series[i].id)
	}
	var gaps []engine.Damage
	w.Damaged = func(d engine.Damage) {
		require.ErrorIs(t, d.Err, engine.ErrCorrupt)
		gaps = append(gaps, d)
	}
	got := map[string]string{}
	for _, row := range mustRead(t, func(ctx context.Context, _ engine.Range) seq { return New(eng, Options{}).Chunks(ctx, w) }, engine.Range{}) {
		got[fmt.Sprint(row.key)] = row.value
	}
	for _, row := range rows {
		if _, wanted := slices.BinarySearch(w.IDs, row.key[of.series].Text); !wanted || row.key[0].Int != format.KindChunk {
			continue
		}
		if value, ok := got[fmt.Sprint(row.key)]; ok && value == row.value {
			continue
		}
		require.True(t, slices.ContainsFunc(gaps, func(d engine.Damage) bool {
			return (d.After == nil || engine.Compare(d.After, row.key) < 0) && (d.Before == nil || engine.Compare(row.key, d.Before) < 0)
		}), "%s: %v isn't as it was, and no gap has it: %v", table, row.key, gaps)
	}
}

func betterOf(table *engine.Table, series []testSeries) (rows []engine.Mutation) {
	for i := range series {
		rows = append(rows, series[i].better(table, 1, 1))
	}
	return rows
}

// flipByte flips a byte of a sorted file.
func flipByte(t testing.TB, fs *pebble.CrashableFS, rng *rand.Rand) {
	names, err := fs.List("data")
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".sst") })
	slices.Sort(names)
	name := "data/" + names[rng.IntN(len(names))]
	info, err := fs.Stat(name)
	require.NoError(t, err)
	f, err := fs.OpenReadWrite(name, "unspecified")
	require.NoError(t, err)
	b, at := make([]byte, 1), rng.Int64N(info.Size())
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 0x5a
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// requireKnown reads a damaged table, and returns 1 if damage was named. A row may have a lower rank than before only
// if the better one is unreadable.
func requireKnown(t testing.TB, eng engine.Engine, table *engine.Table, want []testRow) int {
	known := map[string]string{}
	for _, row := range want {
		known[fmt.Sprint(row.key)] = row.value
	}
	named := 0
	whole := engine.Range{Table: table, Partition: partitionOf("up"), Damaged: func(d engine.Damage) {
		require.ErrorIs(t, d.Err, engine.ErrCorrupt)
		named = 1
	}}
	rows := mustRead(t, New(eng, Options{}).Scan, whole)
	same := 0
	for i, row := range rows {
		value, ok := known[fmt.Sprint(row.key)]
		require.True(t, ok)
		if value == row.value {
			same++
		}
		if i > 0 {
			require.Negative(t, engine.Compare(rows[i-1].key, row.key))
		}
	}
	require.Equal(t, len(want) > same, named == 1 && len(want) > same)
	whole.Damaged = nil
	if _, err := readAll(New(eng, Options{}).Scan, whole); named == 0 {
		require.NoError(t, err)
	} else if !errors.Is(err, engine.ErrCorrupt) {
		require.NoError(t, err) // Damage of a file without rows doesn't end a scan.
	}
	return named
}
