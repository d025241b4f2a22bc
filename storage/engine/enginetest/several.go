package enginetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// testSeveralScanner checks that ScanSeveral yields the same rows for each partition as a separate scan. Some
// partitions have many rows, some have few, and most have none.
func testSeveralScanner(t *testing.T, e engine.Engine) {
	g, ok := e.(engine.SeveralScanner)
	if !ok {
		return
	}
	const n = 50
	var partitions []engine.Key
	for i := range n {
		at := engine.Key{engine.Int(7), engine.Int(0), engine.Text("t"),
			engine.Text(fmt.Sprintf("metric %d", i)), engine.Int(0)}
		partitions = append(partitions, at)
		var puts []engine.Mutation
		for row := range map[int]int{0: 700, 3: 1, 4: 20}[i%16] {
			puts = append(puts, put(engine.Key{engine.Int(int64(row % 3)), engine.Int(int64(row)), id(byte(row % 5)),
				id(1)}, fmt.Sprint("v", i, row)))
		}
		if len(puts) > 0 {
			write(t, e, engine.Raw, at, puts...)
		}
	}
	slices.Reverse(partitions)
	type found struct {
		key   string
		value string
	}
	of := func(row engine.Row) found { return found{fmt.Sprint(row.Clustering), string(row.Value)} }
	one := engine.Key{engine.Int(1)}
	for _, r := range []engine.Range{
		{}, {From: one, To: one}, {From: engine.Key{engine.Int(1), engine.Int(5)},
			To: engine.Key{engine.Int(1), engine.Int(40)}},
		{From: one, Limit: 1, KeysOnly: true}, {Limit: 3}, {From: one, To: one, Limit: 30},
	} {
		r.Table = engine.Raw
		for _, asked := range [][]engine.Key{nil, partitions[:1], partitions[1:3], partitions} {
			got := make([][]found, len(asked))
			for row, err := range g.ScanSeveral(context.Background(), r, asked) {
				require.NoError(t, err)
				if r.KeysOnly {
					row.Value = nil
				}
				got[row.At] = append(got[row.At], of(row.Row))
			}
			for i, partition := range asked {
				var want []found
				single := r
				single.Partition = partition
				for row, err := range e.Scan(context.Background(), single) {
					require.NoError(t, err)
					if r.KeysOnly {
						row.Value = nil
					}
					want = append(want, of(row))
				}
				require.Equal(t, want, got[i], "partition %v", partition)
			}
		}
	}
	for range g.ScanSeveral(context.Background(), engine.Range{Table: engine.Raw}, partitions) {
		break // ScanSeveral must support a loop that stops early.
	}
	testRefusedSeveral(t, g, partitions)
}

// testRefusedSeveral checks that ScanSeveral rejects invalid lists of partitions.
func testRefusedSeveral(t *testing.T, g engine.SeveralScanner, partitions []engine.Key) {
	refused := func(table *engine.Table, why string, partitions ...engine.Key) {
		for _, err := range g.ScanSeveral(context.Background(), engine.Range{Table: table}, partitions) {
			require.ErrorIs(t, err, engine.ErrBadKey, why)
			return
		}
		t.Fatal("not refused: ", why)
	}
	other := partitions[0].Clone()
	other[0] = engine.Int(8)
	refused(engine.Raw, "they differ in two fields", other, partitions[1])
	refused(engine.Raw, "they differ in an integer", other, partitions[0])
	refused(engine.Raw, "one comes twice", partitions[0], partitions[1], partitions[0])
	refused(engine.Raw, "one isn't whole", partitions[0][:2])
	refused(engine.Lease, "a conditional table", engine.Key{engine.Text("partitions")})
	refused(engine.Stage, "no text", engine.Key{engine.Int(1), engine.Int(1)})
}
