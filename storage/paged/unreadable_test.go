package paged

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
)

// cutUnknown returns a page with a valid checksum and one entry in an unknown encoding.
func cutUnknown(t testing.TB, p *page.Page, at int) []byte {
	var values [][]byte
	for i := range p.Len() {
		value, err := p.AppendValue(nil, i)
		require.NoError(t, err)
		values = append(values, value)
	}
	require.Nil(t, p.Head().At)
	values[at] = []byte("no chunk") // It is stored uncut, the only such entry.
	b, n := page.Append(nil, p.Head(), values), len(values)
	numbers, texts := chunk.FieldNumbers, chunk.FieldTexts
	if p.Head().Kind == page.Rollups {
		numbers, texts = rollup.FieldNumbers, rollup.FieldTexts
	}
	column := 3 + page.LabelsIDLen + 1 + (2+numbers+texts+7)/8
	require.Equal(t, []byte{1, 0}, b[column:column+2])
	ways := make([]byte, (2*n+7)/8)
	ways[2*at/8] = 2 << (2 * at % 8)
	bad := slices.Concat(b[:column], []byte{2, 0}, ways, b[column+2+(n+7)/8:len(b)-4])
	return binary.LittleEndian.AppendUint32(bad, crc32.Checksum(bad, crc32.MakeTable(crc32.Castagnoli)))
}

// TestUnreadableEntries requires that an unreadable entry of a page is named, that the page's other entries are read,
// and that readers that skip the entry get its series and start.
func TestUnreadableEntries(t *testing.T) {
	for _, table := range rowTables {
		eng, all, pages := damagedPages(t, table)
		p := pages[slices.IndexFunc(pages, func(p *heldPage) bool { return p.kind == format.KindChunk })]
		_ = entriesOf(t, eng, table, p)
		id := p.id(3)
		overwrite(t, eng, table, p, p.first, cutUnknown(t, p.page, 3))
		lost := func(row testRow) bool {
			of := tablesOf(table)
			return row.key[0].Int == format.KindChunk && row.key[of.series].Text == id &&
				row.key[of.start].Int == p.start
		}
		requireOthers(t, eng, table, all, lost, nameOf(p))
		want := slices.DeleteFunc(slices.Clone(all), lost)
		require.Len(t, want, len(all)-1)

		var left []Unreadable
		note := func(u Unreadable) { left = append(left, u) }
		whole := engine.Range{Table: table, Partition: partitionOf("up")}
		for _, keys := range []bool{false, true} {
			left = nil
			whole.KeysOnly = keys
			readable := func(ctx context.Context, r engine.Range) seq {
				return New(eng, Options{}).ScanReadable(ctx, r, note)
			}
			rows := mustRead(t, readable, whole)
			if keys && table != engine.Raw { // Only their values are unreadable.
				require.Len(t, rows, len(all))
				require.Empty(t, left)
				continue
			}
			require.Len(t, rows, len(want))
			requireLeft(t, left, Unreadable{First: id, Last: id, From: p.start, To: p.start}, nameOf(p))
		}
		left = nil
		w := Wanted{Table: table, Partition: partitionOf("up"), Last: p.start + 1<<40, PassOver: 3, Left: note}
		for _, row := range all {
			if row.key[0].Int == format.KindLabels {
				w.IDs = append(w.IDs, row.key[tablesOf(table).series].Text)
			}
		}
		rows := mustRead(t, func(ctx context.Context, _ engine.Range) seq { return New(eng, Options{}).Chunks(ctx, w) },
			engine.Range{})
		require.Len(t, rows, len(want)-len(w.IDs))
		requireLeft(t, left, Unreadable{First: id, Last: id, From: p.start, To: p.start}, nameOf(p))
	}
}

func requireLeft(t testing.TB, left []Unreadable, want Unreadable, named string) {
	require.Len(t, left, 1)
	require.ErrorIs(t, left[0].Err, engine.ErrCorrupt)
	require.ErrorContains(t, left[0].Err, named)
	left[0].Err = nil
	require.Equal(t, want, left[0])
}

// TestUnreadablePages requires that readers that skip unreadable chunks continue without the entries of an unreadable
// data page, and stop at unreadable labels pages and at rows that the engine can't read.
func TestUnreadablePages(t *testing.T) {
	for _, table := range rowTables {
		for _, kind := range []int64{format.KindChunk, format.KindLabels} {
			eng, all, pages := damagedPages(t, table)
			p := pages[slices.IndexFunc(pages, func(p *heldPage) bool { return p.kind == kind })]
			gone := entriesOf(t, eng, table, p)
			bad := slices.Clone(p.value)
			bad[len(bad)/2] ^= 1
			overwrite(t, eng, table, p, p.first, bad)
			var left []Unreadable
			note := func(u Unreadable) { left = append(left, u) }
			chunks := engine.Key{engine.Int(format.KindChunk)}
			whole := engine.Range{Table: table, Partition: partitionOf("up"), From: chunks, To: chunks}
			readable := func(ctx context.Context, r engine.Range) seq {
				return New(eng, Options{}).ScanReadable(ctx, r, note)
			}
			rows, err := readAll(readable, whole)
			if kind == format.KindLabels {
				require.ErrorIs(t, err, engine.ErrCorrupt)
				require.Empty(t, left)
				continue
			}
			require.NoError(t, err)
			want := slices.DeleteFunc(slices.Clone(all), func(row testRow) bool {
				return row.key[0].Int == format.KindLabels || gone[nameOfRow(table, row)]
			})
			requireRows(t, want, rows, "without a page")
			requireLeft(t, left, Unreadable{First: p.first, Last: p.lastID(), From: p.start, To: p.start}, nameOf(p))

			blocks := &gappy{
				eng, tablesOf(table).pages,
				func(key engine.Key) bool { return key[pageVersion].Text == pages[len(pages)-1].version },
			}
			_, err = readAll(func(ctx context.Context, r engine.Range) seq {
				return New(blocks, Options{}).ScanReadable(ctx, r, note)
			}, whole)
			require.ErrorIs(t, err, errGap)
		}
	}
}
