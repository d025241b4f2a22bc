package objects

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

// TestDamagedLists damages the newest manifest and a list of garbage. Further backups succeed, report the damaged
// objects, and upload again the files that the list may contain. Once the damaged objects are removed, no trace is
// left.
func TestDamagedLists(t *testing.T) {
	for how, damage := range map[string]func([]byte) []byte{
		"cut":     func(content []byte) []byte { return content[:len(content)/2] },
		"empty":   func([]byte) []byte { return nil },
		"a bit":   func(content []byte) []byte { return flipped(content, len(content)/2) },
		"no JSON": func([]byte) []byte { return []byte((*Key)(nil).sum("record", nil) + "\n") },
	} {
		b, o, now := newMemory(), DefaultOptions(), time.Unix(2e9, 0)
		o.Keep, o.Grace, o.Now = pebble.Keep{Last: 2}, 10*time.Hour, func() time.Time { return now }
		name := names(20)
		backup := func(i int, content string) (pebble.BackupStats, error) {
			b.now, now = b.now.Add(6*time.Hour), now.Add(6*time.Hour)
			return Backup(
				t.Context(), b, checkpoint(t, "s", map[string]string{"f": content, "always": "x"}), name[i], o,
			)
		}
		for i, content := range []string{"a", "b", "c", "d", "e", "f"} {
			_, err := backup(i, content)
			require.NoError(t, err)
		}
		require.NotEmpty(t, b.of("garbage"))
		listOfGarbage := b.of("garbage")[0]
		var g garbage
		require.NoError(t, getRecord(t.Context(), b, listOfGarbage, &g, nil))
		noted := string(b.objects[setOf("s", nil).folder("files")+g.Files[0]])
		b.objects[listOfGarbage] = damage(b.objects[listOfGarbage])
		stats, err := backup(6, noted)
		require.NoError(t, err, how)
		require.Len(t, stats.Unreadable, 1)
		require.Contains(t, stats.Unreadable[0], listOfGarbage)
		require.Contains(t, stats.Unreadable[0], "remove the object")
		require.Equal(t, map[string]string{"f": noted, "always": "x"}, filesOf(t, b, "", o))
		require.Positive(t, stats.Copied, "another process may be removing what the list names")
		stats, err = backup(7, noted)
		require.NoError(t, err, how)
		require.Zero(t, stats.Copied, "what was uploaded after the list was made is used")
		require.NoError(t, b.Delete(t.Context(), listOfGarbage))

		manifest := setOf("s", nil).manifest(name[7], false)
		b.objects[manifest] = damage(b.objects[manifest])
		var retention *pebble.RetentionError
		stats, err = backup(8, "b")
		require.ErrorAs(t, err, &retention, how)
		require.ErrorContains(t, err, "no files are removed while it exists; if it isn't needed, remove the object")
		require.Len(t, stats.Unreadable, 1)
		require.Contains(t, stats.Unreadable[0], name[7])
		require.Equal(t, map[string]string{"f": "b", "always": "x"}, filesOf(t, b, "", o))
		require.NoError(t, b.Delete(t.Context(), manifest))
		for i := range 6 {
			stats, err = backup(9+i, "b")
			require.NoError(t, err, how)
			require.Empty(t, stats.Unreadable)
		}
		require.Len(t, b.of("files"), 2)
		require.Empty(t, b.of("garbage"))
	}
}

// suspended is a bucket whose process is suspended while it stores its first manifest, so that this manifest appears
// after those of other backups.
type suspended struct {
	*memory
	meanwhile func()
}

func (s *suspended) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	if meanwhile := s.meanwhile; strings.HasPrefix(name, "backups/") && meanwhile != nil {
		s.meanwhile = nil
		meanwhile()
	}
	return s.memory.Put(ctx, name, from, size)
}

// TestSuspendedInTheManifest suspends a machine for three days while it stores a manifest. By the clocks of the bucket
// and of other processes the time passes, and another process removes a file of the manifest. The deadline of the
// request doesn't expire, because a machine's monotonic clock stops while it is suspended.
func TestSuspendedInTheManifest(t *testing.T) {
	b, o, now := newMemory(), DefaultOptions(), time.Unix(2e9, 0)
	o.Keep, o.Grace, o.Now = pebble.Keep{Last: 1}, 10*time.Hour, func() time.Time { return now }
	name := names(20)
	_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "returns"}), name[0], o)
	require.NoError(t, err)
	others := func() {
		for i := range 6 {
			b.now, now = b.now.Add(12*time.Hour), now.Add(12*time.Hour)
			_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "others"}), name[2+i], o)
			require.NoError(t, err)
		}
		require.Len(t, b.of("files"), 1, "what the suspended one needs was removed")
	}
	stats, err := Backup(
		t.Context(), &suspended{b, others}, checkpoint(t, "s", map[string]string{"f": "returns"}), name[9], o,
	)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Copied)
	require.Equal(t, map[string]string{"f": "returns"}, filesOf(t, b, name[9], o))
}

// TestFileRemovedWhileOthersAreCopied makes another process remove a file after a backup has listed it. The backup
// uploads the file again before it stores its manifest, so no manifest ever names a missing file.
func TestFileRemovedWhileOthersAreCopied(t *testing.T) {
	b, o := newMemory(), DefaultOptions()
	name := names(2)
	_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "same"}), name[0], o)
	require.NoError(t, err)
	others := &suspended{memory: b}
	removed := false
	r := &removing{suspended: others, remove: func() {
		for _, object := range b.of("files") {
			require.NoError(t, b.Delete(t.Context(), object))
			removed = true
		}
	}}
	others.meanwhile = func() { require.Len(t, b.of("files"), 2, "all files are there when the manifest is stored") }
	_, err = Backup(t.Context(), r, checkpoint(t, "s", map[string]string{"f": "same", "g": "new"}), name[1], o)
	require.NoError(t, err)
	require.True(t, removed)
	require.Equal(t, map[string]string{"f": "same", "g": "new"}, filesOf(t, b, name[1], o))
}

// removing is a bucket whose files are removed right before the first upload.
type removing struct {
	*suspended
	remove func()
}

func (r *removing) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	if remove := r.remove; strings.Contains(name, "files/") && remove != nil {
		r.remove = nil
		remove()
	}
	return r.suspended.Put(ctx, name, from, size)
}

// TestBackupsWithMissingFiles checks that backups with missing files don't count for retention, and that no complete
// backup is removed because of them.
func TestBackupsWithMissingFiles(t *testing.T) {
	b, o := newMemory(), DefaultOptions()
	o.Keep = pebble.Keep{Last: 2}
	name := names(9)
	for i, content := range []string{"a", "b", "c"} {
		_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": content}), name[i], o)
		require.NoError(t, err)
	}
	all, err := listBackups(t.Context(), b, "backups/")
	require.NoError(t, err)
	m, err := readManifest(t.Context(), b, all[1], nil)
	require.NoError(t, err)
	require.NoError(t, b.Delete(t.Context(), all[1].folder("files")+m.Files[0].Object))
	stats, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "d"}), name[3], o)
	require.NoError(t, err)
	require.Zero(t, stats.Removed)
	require.Len(t, stats.Unreadable, 1)
	require.Contains(t, stats.Unreadable[0], name[2]+" can't be restored")
	for i, content := range []string{"b", "d"} {
		require.Equal(t, map[string]string{"f": content}, filesOf(t, b, name[1+2*i], o))
	}
}

// hiding is a bucket that leaves an object out of listings.
type hiding struct {
	*memory
	object string
}

func (h *hiding) List(ctx context.Context, prefix string) ([]Object, error) {
	found, err := h.memory.List(ctx, prefix)
	return slices.DeleteFunc(found, func(o Object) bool { return o.Name == h.object }), err
}

// TestHiddenManifest leaves the manifest of a backup out of listings. The backup has uploaded no files, because another
// backup, which was removed, had the same content. Its files must not be removed as garbage.
func TestHiddenManifest(t *testing.T) {
	b, o, now := newMemory(), DefaultOptions(), time.Unix(2e9, 0)
	o.Keep, o.Grace, o.Now = pebble.Keep{Last: 9}, 10*time.Hour, func() time.Time { return now }
	name := names(9)
	lying := &hiding{memory: b}
	backup := func(i int, content string) error {
		b.now, now = b.now.Add(12*time.Hour), now.Add(12*time.Hour)
		_, err := Backup(t.Context(), lying, checkpoint(t, "s", map[string]string{"f": content}), name[i], o)
		return err
	}
	for i, content := range []string{"same", "same", "other"} {
		require.NoError(t, backup(i, content))
	}
	require.NoError(t, b.Delete(t.Context(), setOf("s", nil).manifest(name[0], false)))
	lying.object = setOf("s", nil).manifest(name[1], false)
	for i := range 4 {
		require.ErrorContains(t, backup(3+i, "third"),
			"exists but isn't listed: the listing is unreliable; nothing is removed")
	}
	require.Equal(t, map[string]string{"f": "same"}, filesOf(t, b, name[1], o))
}
