package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// listed describes partitions of a table, and a row that each partition has.
type listed struct {
	table *engine.Table
	at    func(i int) engine.Key
	row   engine.Key
}

func listedTables() []listed {
	return []listed{
		{
			engine.Stage,
			func(i int) engine.Key { return engine.Key{engine.Int(int64(i*i*i) - 1000), engine.Int(int64(i % 3))} },
			engine.Key{id(1), engine.Int(1)},
		},
		{
			engine.Staged,
			func(i int) engine.Key { return engine.Key{engine.Int(int64(i % 3)), engine.Int(int64(-i * i))} },
			engine.Key{engine.Int(1), id(1), engine.Int(1)},
		},
		{engine.Sealed, func(i int) engine.Key {
			return engine.Key{engine.Int(int64(i % 3)), engine.Text(fmt.Sprint("t\x00", i))}
		}, engine.Key{engine.Int(1), engine.Int(1), id(1)}},
	}
}

// testPartitions checks, for prefixes of all lengths, that partitions with rows are listed and that partitions that
// never had rows aren't. Some partitions have many rows, some had rows that were deleted, and some never had rows.
func testPartitions(t *testing.T, e engine.Engine) {
	const n = 100
	for _, c := range listedTables() {
		has, never := map[string]engine.Key{}, map[string]bool{}
		for i := range n {
			at := c.at(i)
			if i%4 == 3 {
				never[fmt.Sprint(at)] = true
				continue
			}
			write(t, e, c.table, at, put(c.row, "v"))
			if i%4 == 2 {
				write(t, e, c.table, at, remove(c.row))
				continue
			}
			has[fmt.Sprint(at)] = at
			for seq := range int64(i % 5) {
				row := c.row.Clone()
				row[len(row)-1].Int = 2 + seq
				write(t, e, c.table, at, put(row, "v"))
			}
		}
		for _, prefix := range []engine.Key{nil, c.at(4)[:1], c.at(5)[:1], c.at(4), c.at(3)} {
			found := map[string]bool{}
			for key, err := range e.Partitions(context.Background(), c.table, prefix, nil) {
				require.NoError(t, err)
				require.Zero(t, engine.Compare(key, prefix), "%v isn't below %v", key, prefix)
				found[fmt.Sprint(key)] = true
				require.False(t, never[fmt.Sprint(key)], "%v of %s never had rows", key, c.table)
			}
			for name, key := range has {
				require.Equal(t, engine.Compare(key, prefix) == 0, found[name],
					"%v of %s, below %v", key, c.table, prefix)
			}
		}
		for range e.Partitions(context.Background(), c.table, nil, nil) {
			break // Partitions must support a loop that stops early.
		}
	}
}

func testPartitionsRefused(t *testing.T, e engine.Engine) {
	refused := func(ctx context.Context, table *engine.Table, prefix engine.Key) (err error) {
		for key, e := range e.Partitions(ctx, table, prefix, nil) {
			require.Nil(t, err, "nothing comes after an error")
			require.True(t, e == nil || key == nil)
			err = e
		}
		return err
	}
	require.ErrorIs(t, refused(context.Background(), engine.Lease, nil), engine.ErrBadKey, "a conditional table")
	require.ErrorIs(t, refused(context.Background(), engine.Stage, engine.Key{engine.Text("x")}), engine.ErrBadKey)
	require.ErrorIs(
		t, refused(context.Background(), engine.Stage, engine.Key{engine.Int(1), engine.Int(1), engine.Int(1)}),
		engine.ErrBadKey,
	)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	write(t, e, engine.Stage, engine.Key{engine.Int(1), engine.Int(1)}, put(engine.Key{id(1), engine.Int(1)}, "v"))
	require.ErrorIs(t, refused(cancelled, engine.Stage, engine.Key{engine.Int(1)}), context.Canceled)
}
