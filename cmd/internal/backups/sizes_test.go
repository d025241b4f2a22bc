package backups

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage/pebble"
)

// TestSizesOfStoredBackups checks the sizes of backups that were made before the process started. The size of a backup
// with a damaged file list is unknown, and the metric is the size of the newest complete backup.
func TestSizesOfStoredBackups(t *testing.T) {
	needsServer(t)
	server := s3test.Start(t)
	x := newStore(t)
	folder := filepath.Join(t.TempDir(), "folder")
	for _, p := range []Location{
		{At: folder}, {At: s3test.At(server.Address, "plain")},
		{At: s3test.At(server.Address, "encrypted"), KeyFile: newKey(t)},
	} {
		var made []pebble.BackupStats
		for i := range 3 {
			x.write()
			stats, err := p.Backup(t.Context(), x.makeSnapshot(), name(i), time.Now().Add(time.Duration(i-5)*time.Hour))
			require.NoError(t, err)
			made = append(made, stats)
		}
		pattern := filepath.Join(folder, name(1), "backup.json")
		if p.InBucket() {
			pattern = filepath.Join(server.BucketDir(), filepath.Base(p.String()), "backups", "*", "*", name(1)+"*")
		}
		list, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.Len(t, list, 1)
		text, err := os.ReadFile(list[0])
		require.NoError(t, err)
		text[0] = 'x'
		require.NoError(t, os.WriteFile(list[0], text, 0o600))

		var log bytes.Buffer
		s := NewSchedule(ScheduleOptions{
			Place: p, Every: time.Hour, Store: x.id, Snapshot: x.snapshot, Folder: filepath.Join(x.dir, "snapshots"),
			Now: time.Now, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
		})
		s.list(t.Context())
		sizes := map[string]size{}
		for _, b := range s.Status().Stored {
			sizes[b.Name] = size{b.Files, b.Bytes}
		}
		require.Equal(t, map[string]size{
			name(0): {made[0].Files, made[0].Bytes}, name(1): {}, name(2): {made[2].Files, made[2].Bytes},
		}, sizes, p.String())
		require.Contains(t, log.String(), name(1))
		require.InDelta(t, made[2].Bytes, testutil.ToFloat64(s.metrics.bytes), 0)
	}
}
