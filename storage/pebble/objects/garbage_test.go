package objects

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

// TestGarbage checks every hour which files to which no backup refers are recorded as garbage, and which are removed.
func TestGarbage(t *testing.T) {
	b, o, now := newMemory(), DefaultOptions(), time.Unix(2e9, 0)
	o.Keep, o.Grace, o.Now = pebble.Keep{Last: 1}, 10*time.Hour, func() time.Time { return now }
	hour, name := 0, names(100)
	backup := func(content string) pebble.BackupStats {
		stats, err := Backup(
			t.Context(), b, checkpoint(t, "s", map[string]string{"f": content, "always": "x"}), name[hour], o,
		)
		require.NoError(t, err)
		return stats
	}
	later := func(bucket, own time.Duration) { b.now, now, hour = b.now.Add(bucket), now.Add(own), hour+1 }

	backup("a")
	later(time.Hour, time.Hour)
	require.Equal(t, 1, backup("b").Removed)
	require.Len(t, b.of("files"), 3)
	require.Empty(t, b.of("garbage"), "the file is young: it may be another backup's")
	later(9*time.Hour, 9*time.Hour)
	backup("b")
	require.Len(t, b.of("garbage"), 1)
	require.Empty(t, b.of("clock"))

	later(time.Hour, time.Hour)
	require.Equal(t, 1, backup("a").Copied, "what is garbage isn't used")
	require.Len(t, b.of("files"), 4)
	later(time.Hour, 20*time.Hour) // This process' clock jumps forward.
	backup("a")
	later(20*time.Hour, -24*time.Hour) // The bucket's clock jumps forward, and this process' clock back.
	backup("a")
	require.Len(t, b.of("files"), 4, "both clocks must say that the list is old enough")
	later(0, 30*time.Hour)
	backup("a")
	require.Len(t, b.of("files"), 2, "always, and the new a")
	require.Empty(t, b.of("garbage"))
	require.Equal(t, map[string]string{"f": "a", "always": "x"}, filesOf(t, b, "", o))
}

// TestLeftovers checks that the next backup uses or removes the files of an interrupted backup.
func TestLeftovers(t *testing.T) {
	b, o, now := newMemory(), DefaultOptions(), time.Unix(2e9, 0)
	o.Keep, o.Now = pebble.Keep{Last: 1}, func() time.Time { return now }
	name := names(9)
	_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "used", "g": "not"}), name[0], o)
	require.NoError(t, err)
	for _, object := range b.of("backups") {
		require.NoError(t, b.Delete(t.Context(), object)) // as if the manifest had never been stored
	}
	stats, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "used"}), name[1], o)
	require.NoError(t, err)
	require.Zero(t, stats.Copied)
	for i := range 3 {
		b.now, now = b.now.Add(25*time.Hour), now.Add(25*time.Hour)
		_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "used"}), name[2+i], o)
		require.NoError(t, err)
	}
	require.Len(t, b.of("files"), 1)
}

// TestNoSweepWithAManifestThatCannotBeRead checks that no file is removed while a manifest can't be read, because it
// may refer to any file.
func TestNoSweepWithAManifestThatCannotBeRead(t *testing.T) {
	b, o, now := newMemory(), DefaultOptions(), time.Unix(2e9, 0)
	o.Keep, o.Now = pebble.Keep{Last: 3}, func() time.Time { return now }
	name := names(9)
	_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": "a"}), name[0], o)
	require.NoError(t, err)
	object := b.of("backups")[0]
	b.objects[object] = flipped(b.objects[object], 80)
	for i := range 2 {
		b.now, now = b.now.Add(25*time.Hour), now.Add(25*time.Hour)
		_, err := Backup(t.Context(), b, checkpoint(t, "s", map[string]string{"f": fmt.Sprint(i)}), name[1+i], o)
		var retention *pebble.RetentionError
		require.ErrorAs(t, err, &retention)
		require.ErrorContains(t, err, "no files are removed while it exists; if it isn't needed, remove the object")
		require.Equal(t, map[string]string{"f": fmt.Sprint(i)}, filesOf(t, b, "", o), "the backup was made")
	}
	require.Len(t, b.of("files"), 3)
}
