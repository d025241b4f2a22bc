package pebble

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// killedWithLog returns the directory of a store that was killed, with most of its rows only in its log, and the path
// of the log.
func killedWithLog(t *testing.T) (dir, log string, rows int) {
	b := newBackedUp(t)
	b.write()
	rows = 101
	for seq := range int64(rows - 1) {
		require.NoError(t, b.e.Write(ctx, stageBatch(100+seq, strings.Repeat("v", 1500))))
	}
	require.NoError(t, b.e.ledger.writeIfChanged())
	dir = filepath.Join(t.TempDir(), "killed")
	require.NoError(t, os.CopyFS(dir, os.DirFS(b.dir)))
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	info, err := os.Stat(logs[len(logs)-1])
	require.NoError(t, err)
	require.Greater(t, info.Size(), int64(150_000))
	return dir, logs[len(logs)-1], rows
}

// noteLog makes SYNCED record only the first upTo bytes of a log. If upTo is 0, SYNCED doesn't list the log.
func noteLog(t *testing.T, dir, log string, upTo int64) {
	l, problems := readNote(vfs.Default, dir)
	require.Empty(t, problems)
	_, sum, err := sumOf(vfs.Default, log, upTo)
	require.NoError(t, err)
	l.files[filepath.Base(log)] = &written{bytes: upTo, synced: upTo, sum: sum, syncSum: sum}
	require.NoError(t, l.write())
}

// TestDamageOfTheLastSecond changes each of the last synced records of a killed store, after the bytes recorded in
// SYNCED: the directory isn't opened, and Repair names the lost data. Only a log whose very last record is damaged, or
// whose end is missing, looks like a log whose last write was interrupted by a crash.
func TestDamageOfTheLastSecond(t *testing.T) {
	dir, log, _ := killedWithLog(t)
	noteLog(t, dir, log, 40_000)
	whole, err := os.ReadFile(log)
	require.NoError(t, err)
	last := bytes.LastIndex(whole, []byte("vvvv")) + 4
	opens := func(content []byte) error {
		again := filepath.Join(t.TempDir(), "again")
		require.NoError(t, os.CopyFS(again, os.DirFS(dir)))
		require.NoError(t, os.WriteFile(filepath.Join(again, filepath.Base(log)), content, 0o600))
		o := DefaultOptions()
		o.ReadOnly = true
		e, err := Open(again, o)
		if err == nil {
			require.NoError(t, e.Close())
		}
		return err
	}
	require.NoError(t, opens(whole))
	const size = 1600 // max size of a record
	for back := 2 * size; last-back > 45_000; back += 101 {
		if back > 9*size {
			back += 7000
		}
		changed := bytes.Clone(whole)
		changed[last-back] ^= 1
		err := opens(changed)
		require.ErrorContains(t, err, "file "+filepath.Base(log), "%d", back)
		require.ErrorContains(t, err, "is followed by records written after it was synced", "%d", back)
	}
	torn := bytes.Clone(whole)
	torn[last-100] ^= 1
	require.NoError(t, opens(torn), "nothing was written after the last record")
	for back := range 8 {
		require.NoError(t, opens(whole[:last-back*997]), "the log ends %d bytes early", back*997)
		zeros := bytes.Clone(whole)
		clear(zeros[last-back*997:])
		require.NoError(t, opens(zeros), "the last %d bytes are zero", back*997)
	}
}

// TestMendLogBeyondSynced damages the log of a killed store after the bytes recorded in SYNCED. The damage is reported,
// and with giveUp the log is truncated there.
func TestMendLogBeyondSynced(t *testing.T) {
	flip := func(t *testing.T, path string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, changed(text), 0o600))
	}
	for about, c := range map[string]struct {
		damage   func(t *testing.T, path string)
		upTo     int64
		noSynced bool
		before   int // min number of rows before the damage
	}{
		"partly in SYNCED": {damage: flip, upTo: 40_000, before: 30},
		"not in SYNCED":    {damage: flip, before: 30},
		"no SYNCED":        {damage: flip, noSynced: true, before: 30},
		"another log after a torn one": {damage: func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(path, 100_000))
			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "000999.log"), nil, 0o600))
		}, upTo: 40_000, before: 30},
		"a link to nothing": {damage: func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink("nothing", path))
		}, before: 1},
		"a noted link to nothing": {damage: func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink("nothing", path))
		}, upTo: 40_000, before: 1},
	} {
		t.Run(about, func(t *testing.T) {
			dir, log, rows := killedWithLog(t)
			noteLog(t, dir, log, c.upTo)
			if c.noSynced {
				require.NoError(t, os.Remove(filepath.Join(dir, ledgerName)))
			}
			c.damage(t, log)
			name := filepath.Base(log)
			damaged, damagedErr := os.ReadFile(log)
			_, err := Open(dir, DefaultOptions())
			require.ErrorContains(t, err, "cassia restore --damaged")
			if !c.noSynced {
				require.ErrorContains(t, err, "file "+name+" of "+dir)
			}

			stats, err := Repair(ctx, noSpares, dir, false)
			require.NoError(t, err)
			require.Len(t, stats.Left, 1)
			require.Contains(t, stats.Left[0], name)
			require.Contains(t, stats.Left[0], "--give-up-log")
			require.Empty(t, append(stats.Mended, stats.Lost...))
			require.NoDirExists(t, filepath.Join(dir, asideFolder), "nothing is changed unasked")

			stats, err = Repair(ctx, noSpares, dir, true)
			require.NoError(t, err)
			require.Empty(t, stats.Left)
			require.NotEmpty(t, stats.Lost)
			require.Contains(t, stats.Lost[0], name)
			_, err = os.Lstat(filepath.Join(dir, asideFolder, name))
			require.NoError(t, err)
			if damagedErr == nil {
				aside, err := os.ReadFile(filepath.Join(dir, asideFolder, name))
				require.NoError(t, err)
				require.Equal(t, damaged, aside)
			}
			again, err := Repair(ctx, noSpares, dir, true)
			require.NoError(t, err)
			require.Empty(t, append(append(again.Left, again.Lost...), again.Mended...))

			e, err := Open(dir, DefaultOptions())
			require.NoError(t, err)
			require.GreaterOrEqual(t, stageRows(t, e), c.before)
			require.Less(t, stageRows(t, e), rows)
			require.NoError(t, e.Close())
		})
	}
}

// TestMendTornLog checks that the log of a killed store may end in the middle of a record, as after a power cut:
// nothing is reported as damaged.
func TestMendTornLog(t *testing.T) {
	dir, log, _ := killedWithLog(t)
	noteLog(t, dir, log, 40_000)
	require.NoError(t, os.Truncate(log, 100_000))
	stats, err := Repair(ctx, noSpares, dir, false)
	require.NoError(t, err)
	require.Empty(t, append(append(stats.Left, stats.Lost...), stats.Mended...))
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.Greater(t, stageRows(t, e), 30)
	require.NoError(t, e.Close())
}

// TestMendLeavesFileInPlace checks that a damaged file stays in its place until another one replaces it, so that a
// repair that was killed can be repeated.
func TestMendLeavesFileInPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "000001.log")
	require.NoError(t, os.WriteFile(path, []byte("damaged"), 0o600))
	m := &repairer{dir: dir, stats: &RepairStats{}}
	require.NoError(t, m.linkAside("000001.log"))
	for _, at := range []string{path, filepath.Join(dir, asideFolder, "000001.log")} {
		text, err := os.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, "damaged", string(text))
	}
	replaced := &toRepair{file: "000001.log", fits: func(string) (bool, error) { return true, nil }}
	ok, err := m.replaceWith(replaced, func(to string) error { return os.WriteFile(to, []byte("new"), 0o600) })
	require.NoError(t, err)
	require.True(t, ok)
	for at, want := range map[string]string{
		path: "new", filepath.Join(dir, asideFolder, "000001.log"): "damaged",
		filepath.Join(dir, asideFolder, "000001.log.1"): "damaged",
	} {
		text, err := os.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
}
