package paged

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// compactionOf is the compaction of a metric's rollups.
func compactionOf(table *engine.Table, metric string) Compaction {
	return Compaction{
		Resolution: resolutionOf(table), Partition: partitionOf(metric), Between: func() {}, Reading: func() func() { return func() {} },
		Timestamp: func(start int64, version uint64) int64 { return (start+slotMS)*1000 + int64(version) },
	}
}

// takeApart returns rows with the chunks of long ones that start between two times in their place.
func takeApart(t testing.TB, rows []testRow, first, last int64) (all []testRow) {
	for _, row := range rows {
		interval, long := format.LongStart(row.key[2].Int)
		if !long {
			all = append(all, row)
			continue
		}
		var l rollup.Long
		require.NoError(t, l.Parse([]byte(row.value)))
		require.GreaterOrEqual(t, l.Parts[0].Start, interval)
		asked := func(p rollup.Part) bool { return first <= p.Start && p.Start <= last }
		require.NoError(t, l.Split(asked, func(p rollup.Part, value []byte) error {
			all = append(all, testRow{key: format.RollupKey(row.key[1].Text, p.Start), value: string(value)})
			return nil
		}))
	}
	return all
}

// requireAllJoined holds that a partition has no two rows of a series in an interval, and no entry in pages that a row
// stands for.
func requireAllJoined(t testing.TB, eng engine.Engine, table *engine.Table, partition engine.Key) {
	t.Helper()
	chunks := engine.Key{engine.Int(format.KindChunk)}
	intervals, alone := map[string]bool{}, map[string]int64{}
	for _, row := range mustRead(t, eng.Scan, engine.Range{Table: table, Partition: partition, From: chunks, To: chunks}) {
		id, start := row.key[1].Text, row.key[2].Int
		interval, long := format.LongStart(start)
		if !long {
			interval = format.LongInterval(resolutionOf(table), start)
			alone[fmt.Sprintf("%x %d", id, interval)] = start
		} else {
			var l rollup.Long
			require.NoError(t, l.Parse([]byte(row.value)))
			require.Greater(t, len(l.Parts), 1)
		}
		key := fmt.Sprintf("%x %d", id, interval)
		require.False(t, intervals[key], "series %x has two rows in the interval of %d", id, interval)
		intervals[key] = true
	}
	r := New(eng, Options{})
	for _, p := range pagesIn(t, eng, table, partition) {
		_, err := r.open(t.Context(), tablesOf(table), partition, p)
		require.NoError(t, err)
		for i := range p.page.Len() {
			value, err := p.page.AppendValue(nil, i)
			require.NoError(t, err)
			if p.kind == format.KindLabels {
				continue
			}
			key := fmt.Sprintf("%x %d", p.id(i), format.LongInterval(resolutionOf(table), p.start))
			if row, ok := alone[key]; ok && row == p.start { // Outdone removes it, if it is.
				continue
			}
			require.False(t, intervals[key], "an entry of an interval that has a row is left: version %d", rollup.VersionOf(value))
		}
	}
}
