package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestSpaceAddsUp compares the disk usage that an engine reports, by kind, with the sizes of the files. Files are
// created and removed in the background, so the test waits until they no longer change.
func TestSpaceAddsUp(t *testing.T) {
	dir := t.TempDir()
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	var space map[string]uint64
	addsUp := func() bool {
		before, err := Bytes(dir)
		require.NoError(t, err)
		space, err = e.Space(ctx)
		require.NoError(t, err)
		sum := uint64(0)
		for _, n := range space {
			sum += n
		}
		return sum == before
	}
	require.Eventually(t, addsUp, waitAtMost, pollEvery)
	require.Zero(t, space["raw"])
	fill(t, e)
	require.Eventually(t, addsUp, waitAtMost, pollEvery)
	require.Positive(t, space[SpaceLog])
	require.NoError(t, e.CompactAll(ctx))
	require.Eventually(t, addsUp, waitAtMost, pollEvery)
	for _, of := range []string{"raw", "stage", SpaceOther} {
		require.Positive(t, space[of], of)
	}
	require.Len(t, space, len(engine.Tables)+3, "no table has the name of another part")
	require.NoError(t, e.Close())
	_, err = e.Space(ctx)
	require.ErrorIs(t, err, engine.ErrClosed)
}

// TestSpaceOfFilesThatWent checks that the tables are scaled down if they add up to more bytes than the files have.
func TestSpaceOfFilesThatWent(t *testing.T) {
	space := shareDiskUsage(map[string]uint64{"raw": 300, "r5m": 100}, fileBytes{sorted: 40, log: 5, other: 2})
	require.Equal(t, map[string]uint64{"raw": 30, "r5m": 10, SpaceLog: 5, SpaceOther: 2, SpaceFree: 0}, space)
	space = shareDiskUsage(map[string]uint64{"raw": 30}, fileBytes{sorted: 40})
	require.Equal(t, map[string]uint64{"raw": 30, SpaceLog: 0, SpaceOther: 0, SpaceFree: 10}, space)
}

// TestSpaceOfDirectoriesBelow checks that files in subdirectories count as SpaceOther, regardless of their names.
func TestSpaceOfDirectoriesBelow(t *testing.T) {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("data/snapshots/a", 0o755))
	write := func(path string) {
		f, err := mem.Create(path, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = f.Write(make([]byte, 10_000))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	before, err := measureDir(mem, "data")
	require.NoError(t, err)
	write("data/000001.sst")
	write("data/snapshots/a/000001.sst")
	write("data/snapshots/a/000002.log")
	after, err := measureDir(mem, "data")
	require.NoError(t, err)
	require.Zero(t, after.log)
	require.EqualValues(t, 10_000, after.sorted)
	require.EqualValues(t, 20_000, after.other-before.other)
}
