package pebble

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble/badblocks"
)

// TestDamagedBlocksAreSearchedOnce checks that later reads of a damaged block return Pebble's first error without its
// search for flipped bits, or the block if its content is correct again.
func TestDamagedBlocksAreSearchedOnce(t *testing.T) {
	whole, searched := layeredEngine(t), 0
	for _, name := range tablesOf(t, whole) {
		mem := copyOf(t, whole)
		info, err := mem.Stat("data/" + name)
		require.NoError(t, err)
		at := info.Size() / 3
		flipByte(t, mem, "data/"+name, at)
		e := openOn(t, mem)
		for n := range int64(damagedPartitions) {
			rows, err := scanUpTo(e, n)
			if !errors.Is(err, engine.ErrCorrupt) || badblocks.Locate(err).Offset < 0 {
				continue
			}
			searched++
			again, errAgain := scanUpTo(e, n)
			require.Equal(t, rows, again, name)
			require.EqualError(t, errAgain, err.Error(), name)
			require.ErrorAs(t, errAgain, new(badblocks.KnownBlockError), name)
		}
		flipByte(t, mem, "data/"+name, at)
		for n := range int64(damagedPartitions) {
			if rows, err := scanUpTo(e, n); err == nil { // Pebble caches blocks read at open.
				require.Equal(t, damagedRows, rows, name)
			} else {
				require.NotErrorAs(t, err, new(badblocks.KnownBlockError), name)
			}
		}
		require.NoError(t, e.Close())
	}
	require.NotZero(t, searched)
}

// scanUpTo returns the number of rows of a partition before the first unreadable one.
func scanUpTo(e *Engine, n int64) (rows int, err error) {
	for _, err := range e.Scan(ctx, engine.Range{
		Table: engine.Stage, Partition: engine.Key{engine.Int(n), engine.Int(0)},
	}) {
		if err != nil {
			return rows, err
		}
		rows++
	}
	return rows, nil
}
