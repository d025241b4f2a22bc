package enginetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// testProber checks that the results of Occupied for many partitions equal the results of scans. Some partitions have
// rows, some had rows that were deleted, and most never had rows.
func testProber(t *testing.T, e engine.Engine) {
	p, ok := e.(engine.Prober)
	if !ok {
		return
	}
	for _, c := range []struct {
		table *engine.Table
		at    func(i int) engine.Key
		row   engine.Key
	}{
		{engine.Stage, func(i int) engine.Key { return engine.Key{engine.Int(int64(i)), engine.Int(3)} },
			engine.Key{id(1), engine.Int(1)}},
		{engine.Staged, func(i int) engine.Key { return engine.Key{engine.Int(3), engine.Int(int64(-i))} },
			engine.Key{engine.Int(1), id(1), engine.Int(1)}},
		{engine.Sealed, func(i int) engine.Key { return engine.Key{engine.Int(int64(i)), engine.Text("t")} },
			engine.Key{engine.Int(1), engine.Int(1), id(1)}},
	} {
		const n = 200
		var partitions []engine.Key
		for i := range n {
			partitions = append(partitions, c.at(i))
			if i%7 == 0 {
				write(t, e, c.table, c.at(i), put(c.row, "v"))
			}
			if i%21 == 0 {
				write(t, e, c.table, c.at(i), remove(c.row))
			}
		}
		for _, asked := range [][]engine.Key{nil, partitions[:1], partitions[1:2], partitions[7:8], partitions} {
			found, err := p.Occupied(context.Background(), c.table, asked)
			require.NoError(t, err)
			require.Len(t, found, len(asked))
			for i, partition := range asked {
				some := false
				for _, err := range e.Scan(context.Background(),
					engine.Range{Table: c.table, Partition: partition, Limit: 1}) {
					require.NoError(t, err)
					some = true
				}
				require.Equal(t, some, found[i], "partition %v of %s", partition, c.table)
			}
		}
	}
	_, err := p.Occupied(context.Background(), engine.Stage, []engine.Key{{engine.Int(1)}})
	require.ErrorIs(t, err, engine.ErrBadKey)
	_, err = p.Occupied(context.Background(), engine.Stage,
		[]engine.Key{{engine.Int(1), engine.Int(1)}, {engine.Int(2), engine.Int(2)}})
	require.ErrorIs(t, err, engine.ErrBadKey, "they differ in two fields")
	_, err = p.Occupied(context.Background(), engine.Lease, []engine.Key{{engine.Text("partitions")}})
	require.ErrorIs(t, err, engine.ErrBadKey, "a conditional table")
}
