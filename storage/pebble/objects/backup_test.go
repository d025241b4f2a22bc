package objects

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

// names returns names of backups, each an hour after the previous one.
func names(n int) (out []string) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%x", at.Add(time.Duration(i)*time.Hour).Format(nameLayout), i))
	}
	return out
}

func TestBackupsShareFiles(t *testing.T) {
	hybrid, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	for about, key := range map[string]*Key{
		"plain": nil, "encrypted": testKey(t, newIdentity(t)), "post-quantum": testKey(t, hybrid.String()),
	} {
		b, o := newMemory(), DefaultOptions()
		o.Key = key
		first := map[string]string{"one.txt": "one", "two.txt": strings.Repeat("two", 1e5), "empty": "", "same": "one"}
		second := map[string]string{"three.txt": "three", "two.txt": first["two.txt"], "empty": ""}
		name := names(2)
		stats, err := Backup(t.Context(), b, checkpoint(t, "s", first), name[0], o)
		require.NoError(t, err, about)
		require.Equal(t, 4, stats.Files)
		stats, err = Backup(t.Context(), b, checkpoint(t, "s", second), name[1], o)
		require.NoError(t, err, about)
		require.Equal(t, 3, stats.Files)
		require.Equal(t, 1, stats.Copied, "what is there by its content isn't uploaded again")
		require.Equal(t, first, filesOf(t, b, name[0], o), about)
		require.Equal(t, second, filesOf(t, b, "", o), "the newest")
	}
}

func newIdentity(t *testing.T) string {
	i, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return i.String()
}

func TestSizeOfEncryptedObjects(t *testing.T) {
	k := testKey(t, newIdentity(t))
	for _, n := range []int{0, 1, 65535, 65536, 65537, 131072, 131073, 1 << 20} {
		b := newMemory()
		from, err := k.encrypt(bytes.NewReader(make([]byte, n)))
		require.NoError(t, err)
		require.NoError(t, b.Put(t.Context(), "x", from, k.size(int64(n))), n)
	}
}

// TestEncryptedObjectsTellNothing checks that objects stored with a key reveal neither contents, nor their hashes, nor
// names of files.
func TestEncryptedObjectsTellNothing(t *testing.T) {
	b, o := newMemory(), DefaultOptions()
	o.Key = testKey(t, newIdentity(t))
	_, err := Backup(
		t.Context(), b, checkpoint(t, "s", map[string]string{"private.log": "hunter2 is the secret"}), names(1)[0], o,
	)
	require.NoError(t, err)
	sum, _, err := pebble.SHA256Of(
		t.Context(), filepath.Join(checkpoint(t, "", map[string]string{"x": "hunter2 is the secret"}), "x"),
	)
	require.NoError(t, err)
	for name, content := range b.objects {
		for _, secret := range []string{"hunter2", "private.log", sum} {
			require.NotContains(t, name, secret)
			require.NotContains(t, string(content), secret)
		}
	}

	other := o
	other.Key = testKey(t, newIdentity(t))
	for about, o := range map[string]Options{"no key": DefaultOptions(), "another key": other} {
		for _, name := range []string{"", names(1)[0]} {
			dir := filepath.Join(t.TempDir(), "x")
			_, err = Restore(t.Context(), b, name, dir, o)
			require.ErrorIs(t, err, ErrKey, about)
			require.NoDirExists(t, dir)
		}
	}
}

// TestForgedManifest checks that a party that can write to the bucket, and has the recipient, can't make a manifest.
func TestForgedManifest(t *testing.T) {
	b, o := newMemory(), DefaultOptions()
	o.Key = testKey(t, newIdentity(t))
	_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"a": "a"}), names(1)[0], o)
	require.NoError(t, err)
	forger := *o.Key
	forger.secret = []byte("guessed")
	m := manifest{Version: 1, Name: names(1)[0], Store: "s"}
	require.NoError(t, m.write(t.Context(), b, setOf("s", o.Key), &forger))
	require.NoError(t, putRecord(t.Context(), b, setOf("s", o.Key).folder("backups")+m.Name+manifestSuffix, m, &forger))
	_, err = Restore(t.Context(), b, "", filepath.Join(t.TempDir(), "x"), o)
	require.ErrorIs(t, err, pebble.ErrBackup)
	require.ErrorContains(t, err, "has changed since it was stored")
}

// TestDamagedObjects checks that any damage of any object is detected, and that nothing is restored partially.
func TestDamagedObjects(t *testing.T) {
	for about, key := range map[string]*Key{"plain": nil, "encrypted": testKey(t, newIdentity(t))} {
		b, o := newMemory(), DefaultOptions()
		o.Key = key
		name := names(2)
		_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"a": "older"}), name[0], o)
		require.NoError(t, err)
		before := len(b.of("files"))
		_, err = Backup(t.Context(), b,
			checkpoint(t, "s", map[string]string{"b": strings.Repeat("newer", 30000), "c": "c"}), name[1], o)
		require.NoError(t, err)
		require.Len(t, b.of("files"), before+2)
		m, err := listBackups(t.Context(), b, "backups/")
		require.NoError(t, err)
		damaged, err := readManifest(t.Context(), b, m[1], key)
		require.NoError(t, err)
		targets := []string{m[1].object}
		for _, f := range damaged.Files {
			targets = append(targets, m[1].folder("files")+f.Object)
		}
		for _, object := range targets {
			whole := b.objects[object]
			for how, content := range map[string][]byte{
				"a bit": flipped(whole, len(whole)/2), "the first bit": flipped(whole, 0),
				"the last bit": flipped(whole, len(whole)-1), "cut": whole[:len(whole)-1],
				"longer": append(bytes.Clone(whole), 'x'), "empty": {}, "gone": nil,
			} {
				if b.objects[object] = content; content == nil {
					delete(b.objects, object)
				}
				dir := filepath.Join(t.TempDir(), "restored")
				_, err := Restore(t.Context(), b, name[1], dir, o)
				require.Error(t, err, "%s %s %s", about, how, object)
				require.NoDirExists(t, dir)
				if how != "gone" || object != m[1].object {
					require.ErrorContains(t, err, "the previous backup is --backup="+name[0],
						"%s %s %s", about, how, object)
				}
			}
			b.objects[object] = whole
		}
		require.Len(t, filesOf(t, b, name[1], o), 2)
	}
}

func flipped(content []byte, at int) []byte {
	out := bytes.Clone(content)
	out[at] ^= 1
	return out
}

// TestBackupsOfSeveralStores makes backups of two stores that share a prefix. For each store, the configured number of
// backups is kept, and no store is restored from another store's backup.
func TestBackupsOfSeveralStores(t *testing.T) {
	b, o := newMemory(), DefaultOptions()
	o.Keep = pebble.Keep{Last: 2}
	name := names(6)
	for i, store := range []string{"a", "a", "b", "a", "b/../x"} {
		_, err := Backup(t.Context(), b, checkpoint(t, store, map[string]string{"f": fmt.Sprint(i)}), name[i], o)
		require.NoError(t, err)
	}
	require.Len(t, b.of("backups"), 4)
	_, err := Restore(t.Context(), b, "", filepath.Join(t.TempDir(), "x"), o)
	require.ErrorContains(t, err, "has backups of 3 stores; choose one with --backup. The newest of each store: "+
		strings.Join([]string{name[2], name[3], name[4]}, ", "))
	require.Equal(t, map[string]string{"f": "2"}, filesOf(t, b, name[2], o))
	require.Equal(t, map[string]string{"f": "4"}, filesOf(t, b, name[4], o))
	_, err = Restore(t.Context(), b, name[0], filepath.Join(t.TempDir(), "x"), o)
	require.ErrorIs(t, err, pebble.ErrNoBackup)
}

// TestBackupOfADamagedStore checks that a backup of a damaged source doesn't replace other backups, and is restored
// only if it is named.
func TestBackupOfADamagedStore(t *testing.T) {
	b, o := newMemory(), DefaultOptions()
	o.Keep = pebble.Keep{Last: 1}
	name := names(3)
	_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "whole"}), name[0], o)
	require.NoError(t, err)
	for _, name := range name[1:] { // The second backup finds the damaged file in the first one.
		stats, err := Backup(
			t.Context(), b, checkpoint(t, "s", map[string]string{"000001.sst": "no file of rows"}), name, o,
		)
		require.NoError(t, err)
		require.NotEmpty(t, stats.Damaged)
	}
	require.Len(t, b.of("backups"), 3)
	require.Equal(t, map[string]string{"f": "whole"}, filesOf(t, b, "", o))
	require.Equal(t, map[string]string{"000001.sst": "no file of rows"}, filesOf(t, b, name[2], o))
}

func TestRestoreIntoADirectoryThatIsNotEmpty(t *testing.T) {
	b, o := newMemory(), DefaultOptions()
	_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "whole"}), names(1)[0], o)
	require.NoError(t, err)
	dir := checkpoint(t, "", map[string]string{"mine": "x"})
	_, err = Restore(t.Context(), b, "", dir, o)
	require.ErrorContains(t, err, "must be empty or not exist, but contains mine")
	link := filepath.Join(t.TempDir(), "data")
	empty := t.TempDir()
	require.NoError(t, os.Symlink(empty, link))
	_, err = Restore(t.Context(), b, "", link, o)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(empty, "f"))
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                                     "isn't an age key file; create one with age-keygen",
		"SECRET-LINE":                          "isn't an age key file; create one with age-keygen",
		newIdentity(t) + "\n" + newIdentity(t): "has 2 keys",
	} {
		path := filepath.Join(dir, "key")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := ReadKey(path)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "SECRET")
	}
	_, err := ReadKey(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCancelledBackup(t *testing.T) {
	b := newMemory()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Backup(ctx, b, checkpoint(t, "s", map[string]string{"f": "x"}), names(1)[0], DefaultOptions())
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, b.of("backups"))
}
