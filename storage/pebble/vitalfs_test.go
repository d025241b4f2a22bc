package pebble

import (
	"io/fs"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// TestReusedLogIsNotedAnew checks that a log that is reused under another name is recorded under the new name, starting
// with its first byte.
func TestReusedLogIsNotedAnew(t *testing.T) {
	mem := NewCrashableFS()
	require.NoError(t, mem.MkdirAll("data", 0o755))
	l := newLedger(mem, "data")
	require.NoError(t, l.releaseNotes())
	files := &vitalFS{FS: mem, ledger: l, fail: func(err error) { panic(err) }}
	const of = vfs.WriteCategoryUnspecified
	write := func(f vfs.File, err error) {
		require.NoError(t, err)
		_, err = f.Write([]byte("rows"))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
		require.NoError(t, l.writeIfChanged())
		require.Empty(t, l.verify())
	}
	write(files.Create("data/000002.log", of))
	write(files.ReuseForWrite("data/000002.log", "data/000004.log", of))
	_, err := mem.Stat("data/000002.log")
	require.Error(t, err)
	read, problems := readLedger(mem, "data")
	require.Empty(t, problems)
	require.Len(t, read.files, 1)
	require.Contains(t, read.files, "000004.log")
	_, err = files.ReuseForWrite("data/none.log", "data/000005.log", of)
	require.ErrorIs(t, err, fs.ErrNotExist, "it isn't armed")
	_, err = mem.ReuseForWrite("data/none.log", "data/000005.log", of)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
