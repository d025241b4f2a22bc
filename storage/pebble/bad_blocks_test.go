package pebble

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
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
			if !errors.Is(err, engine.ErrCorrupt) || !checksumMismatch.MatchString(err.Error()) {
				continue
			}
			searched++
			again, errAgain := scanUpTo(e, n)
			require.Equal(t, rows, again, name)
			require.EqualError(t, errAgain, err.Error(), name)
			require.ErrorAs(t, errAgain, new(badBlockError), name)
		}
		flipByte(t, mem, "data/"+name, at)
		for n := range int64(damagedPartitions) {
			if rows, err := scanUpTo(e, n); err == nil { // Pebble caches blocks read at open.
				require.Equal(t, damagedRows, rows, name)
			} else {
				require.NotErrorAs(t, err, new(badBlockError), name)
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

// TestBadBlocks checks that errors that name no block are ignored, and that blocks of other files aren't affected.
func TestBadBlocks(t *testing.T) {
	b := newBadBlocks()
	zeros := make([]byte, 20)
	b.record("data/000007.sst", errors.New("no such file"))
	require.False(t, b.any.Load())
	require.NoError(t, b.checkRead("000007.sst", zeros, 100))
	b.record("data/000007.sst", errors.New("pebble: file 000007: block 100/15: crc32c checksum mismatch 1 != 2"))
	require.ErrorContains(t, b.checkRead("000007.sst", zeros, 100),
		"pebble: file 000007: block 100/15: crc32c checksum mismatch")
	require.NoError(t, b.checkRead("000007.sst", zeros, 101))
	require.NoError(t, b.checkRead("000007.sst", zeros[1:], 100))
	require.NoError(t, b.checkRead("000008.sst", zeros, 100))
}

// TestManyReadsOfBadBlocksPause checks that reads of bad blocks pause if there are more than a query needs. Reads of
// other blocks and of repaired ones never pause.
func TestManyReadsOfBadBlocksPause(t *testing.T) {
	b, pauses := newBadBlocks(), 0
	b.pause = func() { pauses++ }
	b.record("data/000007.sst", errors.New("pebble: file 000007: block 100/15: crc32c checksum mismatch 1 != 2"))
	bad, repaired := make([]byte, 20), make([]byte, 20)
	binary.LittleEndian.PutUint32(repaired[16:], maskedSum(repaired[:16]))
	read := func(n int) {
		for range n {
			require.Error(t, b.checkRead("000007.sst", bad, 100))
			require.NoError(t, b.checkRead("000007.sst", bad, 101))
			require.NoError(t, b.checkRead("000007.sst", repaired, 100))
		}
	}
	b.reads.SetLimit(0) // The limiter's bucket isn't refilled.
	read(badReadsAtOnce)
	require.Zero(t, pauses)
	read(10)
	require.Equal(t, 10, pauses)
}
