package pebble

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDamagedListOfABackup damages the list of the newest backup. A restore suggests the previous backup. The next
// backup succeeds and reports the damaged backup, but neither counts nor removes it.
func TestDamagedListOfABackup(t *testing.T) {
	for how, damage := range map[string]func(string) string{
		"cut":     func(text string) string { return text[:len(text)/2] },
		"empty":   func(string) string { return "" },
		"newer":   func(text string) string { return strings.Replace(text, `"version": 1`, `"version": 9`, 1) },
		"no list": func(string) string { return "[]" },
	} {
		b := newBackedUp(t)
		b.store, b.now = "s", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		names := []string{"20260101T000000Z-a", "20260101T010000Z-b", "20260101T020000Z-c"}
		backup := func(i, keep int) (BackupStats, error) {
			b.write()
			b.now = b.now.Add(time.Hour)
			return b.backup(t.Context(), names[i], keep)
		}
		for i := range 2 {
			_, err := backup(i, 0)
			require.NoError(t, err)
		}
		list := filepath.Join(b.folder, names[1], backupList)
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(list, []byte(damage(string(text))), 0o644))

		for _, name := range []string{"", names[1]} {
			_, err = Restore(t.Context(), b.folder, name, filepath.Join(t.TempDir(), "restored"))
			require.ErrorContains(t, err, names[1], how)
			require.ErrorContains(t, err, "the previous backup is --backup="+names[0], how)
		}
		stats, err := backup(2, 1)
		require.NoError(t, err, how)
		require.Positive(t, stats.Files-stats.Copied, "files are shared with the newest readable one")
		require.Len(t, stats.Unreadable, 1)
		require.Contains(t, stats.Unreadable[0], names[1])
		require.Contains(t, stats.Unreadable[0], "remove its directory")
		require.Equal(t, 3, b.restored(""))
		complete, _, err := backups(b.folder)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{names[1], names[2]}, complete, "what can't be read is removed by people only")
	}
}

// TestIncompleteBackupIsNotKeptForAWholeOne removes a file of a backup. The backup doesn't count for Keep, isn't
// suggested, and is listed as damaged.
func TestIncompleteBackupIsNotKeptForAWholeOne(t *testing.T) {
	b := newBackedUp(t)
	for _, name := range []string{"a", "b"} {
		b.write()
		_, err := b.backup(t.Context(), name, 0)
		require.NoError(t, err)
	}
	manifests, err := filepath.Glob(filepath.Join(b.folder, "b", "MANIFEST-*"))
	require.NoError(t, err)
	require.Len(t, manifests, 1)
	require.NoError(t, os.Remove(manifests[0]))
	b.write()
	stats, err := b.backup(t.Context(), "c", 2)
	require.NoError(t, err)
	require.Zero(t, stats.Removed, "b doesn't count")
	dated, err := Backups(b.folder, b.store)
	require.NoError(t, err)
	require.Len(t, dated, 3)
	require.Equal(t, []bool{false, true, false}, []bool{dated[0].Damaged, dated[1].Damaged, dated[2].Damaged})

	require.NoError(t, os.Remove(filepath.Join(b.folder, "c", filepath.Base(manifests[0]))))
	_, err = Restore(t.Context(), b.folder, "c", filepath.Join(t.TempDir(), "restored"))
	require.ErrorContains(t, err, "the previous backup is --backup=a")
}
