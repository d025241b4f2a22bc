package pebble

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManifestState compares the content of a manifest with Pebble's tables. Some tables are in multiple levels and
// some are parts of files.
func TestManifestState(t *testing.T) {
	b := newBackedUp(t)
	require.NoError(t, b.e.Write(ctx, sealedRows(5_000, 1)))
	for slot := range int64(3) {
		fillSlot(t, b.e, slot)
	}
	require.NoError(t, b.e.CompactAll(ctx))
	sealSlot(t, b.e, 1)
	require.Eventually(t, func() bool { return slotBytes(t, b.e, 1) == 0 }, waitAtMost, pollEvery)
	b.write()
	paths, err := filepath.Glob(filepath.Join(b.dir, "MANIFEST-*"))
	require.NoError(t, err)
	path := paths[len(paths)-1]
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s, err := readManifestState(f)
	require.NoError(t, err)
	require.True(t, s.isWhole)
	levels, err := b.e.db.SSTables()
	require.NoError(t, err)
	live, virtual := s.liveFiles(), 0
	tables := 0
	for _, level := range levels {
		for _, info := range level {
			tables++
			entry, ok := s.tables[uint64(info.FileNum)]
			require.True(t, ok, info.FileNum)
			require.Equal(t, info.Virtual, entry.isVirtual)
			require.Equal(t, uint64(info.BackingSSTNum), entry.file)
			require.Equal(t, string(info.Smallest.UserKey), userKey(entry.smallest))
			require.Equal(t, string(info.Largest.UserKey), userKey(entry.largest))
			require.Equal(t, uint64(info.SmallestSeqNum), entry.firstSeq)
			onDisk, err := os.Stat(filepath.Join(b.dir, info.BackingSSTNum.String()+".sst"))
			require.NoError(t, err)
			require.Equal(t, uint64(onDisk.Size()), live[entry.file].size)
			if info.Virtual {
				virtual++
			}
		}
	}
	require.Len(t, s.tables, tables)
	require.Positive(t, virtual)
}
