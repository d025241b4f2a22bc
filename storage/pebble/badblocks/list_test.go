package badblocks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestBadBlocks checks that a read of a recorded block returns the recorded error, and that reads of other blocks
// don't.
func TestBadBlocks(t *testing.T) {
	b := New()
	zeros := make([]byte, 20)
	require.Empty(t, b.Blocks())
	b.Record("data/000007.sst", errors.New("the footer is too short"))
	require.NoError(t, b.checkRead("000007.sst", zeros, 100))
	b.Record("data/000007.sst", errors.New("pebble: file 000007: block 100/15: crc32c checksum mismatch 1 != 2"))
	require.ErrorContains(t, b.checkRead("000007.sst", zeros, 100),
		"pebble: file 000007: block 100/15: crc32c checksum mismatch")
	require.NoError(t, b.checkRead("000007.sst", zeros, 101))
	require.NoError(t, b.checkRead("000007.sst", zeros[1:], 100))
	require.NoError(t, b.checkRead("000008.sst", zeros, 100))
}

// TestBlocks checks that the list has each damaged block once, until it is readable again.
func TestBlocks(t *testing.T) {
	b := New()
	texts := func() (texts []string) {
		for _, block := range b.Blocks() {
			require.ErrorIs(t, block, engine.ErrCorrupt)
			texts = append(texts, block.Error())
		}
		return texts
	}
	for range 2 {
		b.Record("data/000008.sst", errors.New("pebble/table: invalid table 000008: the footer is too short"))
		const mismatch = "15: crc32c checksum mismatch 1 != 2"
		b.Record("data/000007.sst",
			errors.New("pebble: backing file 000007 error: pebble: file 000007: block 300/"+mismatch))
		b.Record("data/000007.sst", errors.New("pebble: file 000007: block 100/"+mismatch+"\nstack"))
	}
	all := []string{
		"engine: stored data is damaged: file 000007.sst: block 100/15: crc32c checksum mismatch 1 != 2",
		"engine: stored data is damaged: file 000007.sst: block 300/15: crc32c checksum mismatch 1 != 2",
		"engine: stored data is damaged: file 000008.sst: the footer is too short",
	}
	require.Equal(t, all, texts())
	readable := make([]byte, 20)
	binary.LittleEndian.PutUint32(readable[16:], MaskedCRC(readable[:16]))
	require.NoError(t, b.checkRead("000007.sst", readable, 100))
	require.Equal(t, all[1:], texts())
}

// TestManyReadsOfBadBlocksPause checks that reads of bad blocks pause if there are more than a query needs. Reads of
// other blocks and of repaired ones never pause, nor do reads of a directory that is opened for reading only.
func TestManyReadsOfBadBlocksPause(t *testing.T) {
	b, pauses := New(), 0
	b.pause = func() { pauses++ }
	for _, at := range []int{100, 200} {
		b.Record("data/000007.sst", fmt.Errorf("pebble: file 000007: block %d/15: crc32c checksum mismatch 1 != 2", at))
	}
	bad, repaired := make([]byte, 20), make([]byte, 20)
	binary.LittleEndian.PutUint32(repaired[16:], MaskedCRC(repaired[:16]))
	read := func(n int) {
		for range n {
			require.Error(t, b.checkRead("000007.sst", bad, 100))
			require.NoError(t, b.checkRead("000007.sst", bad, 101))
			require.NoError(t, b.checkRead("000007.sst", repaired, 200))
		}
	}
	b.reads.SetLimit(0) // The limiter's bucket isn't refilled.
	read(badReadsAtOnce)
	require.Zero(t, pauses)
	read(10)
	require.Equal(t, 10, pauses)
	b.DisablePauses()
	read(10)
	require.Equal(t, 10, pauses)
}
