package backups

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/storagetest"
)

func TestMain(m *testing.M) {
	for _, variable := range s3test.Environment {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func needsServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an S3 server: leave -short out")
	}
	t.Parallel()
}

// testStore is a store from which the tests make backups.
type testStore struct {
	t   *testing.T
	dir string
	eng *pebble.Engine
	s   *storage.Store
	n   int
}

func newStore(t *testing.T) *testStore {
	x := &testStore{t: t, dir: filepath.Join(t.TempDir(), "data")}
	var err error
	x.eng, err = pebble.Open(x.dir, pebble.DefaultOptions())
	require.NoError(t, err)
	x.s = storagetest.Start(t, x.eng)
	t.Cleanup(func() { require.NoError(t, errors.Join(x.s.Close(), x.eng.Close())) })
	return x
}

// write stores the samples of a new series.
func (x *testStore) write() {
	x.n++
	samples := storagetest.Samples(time.Now().UnixMilli(), -60_000, 1000, func(int) float64 { return rand.Float64() })
	storagetest.Write(x.t, x.s, "default", labels.FromStrings("__name__", "up", "n", fmt.Sprint(x.n)), samples...)
	require.NoError(x.t, x.s.SealAll(x.t.Context()))
}

func (x *testStore) id(ctx context.Context) (string, error) { return storage.IDOf(ctx, x.eng) }

func (x *testStore) snapshot(ctx context.Context, dir string) error {
	store, copy, restoredFrom, err := storage.CopyIDOf(ctx, x.eng)
	if err != nil {
		return err
	}
	return errors.Join(x.eng.Checkpoint(dir), pebble.NameLineage(dir, pebble.Lineage{
		Store: store, Copy: copy, RestoredFrom: restoredFrom,
	}))
}

// makeSnapshot makes a snapshot in a new temporary directory, and returns the directory.
func (x *testStore) makeSnapshot() (dir string) {
	dir = filepath.Join(x.t.TempDir(), "snapshot")
	require.NoError(x.t, x.snapshot(x.t.Context(), dir))
	return dir
}

// hashFiles returns the hashes of an engine's files, by name, for comparing directories.
func hashFiles(t *testing.T, dir string) map[string][32]byte {
	out := map[string][32]byte{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !e.IsDir() && e.Name() != pebble.StoreFile && e.Name() != "LOCK" {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			out[e.Name()] = sha256.Sum256(text)
		}
	}
	return out
}

func restoreAndHash(t *testing.T, p Location, name string) map[string][32]byte {
	dir := filepath.Join(t.TempDir(), "restored")
	_, err := p.Restore(t.Context(), name, dir)
	require.NoError(t, err)
	return hashFiles(t, dir)
}

func name(i int) string {
	return fmt.Sprintf("20261122T%06dZ-%x", i, i)
}

func newKey(t *testing.T) string {
	i, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(i.String()), 0o600))
	return path
}

// TestServerThatIsNotWell makes backups to a server that rejects, interrupts or loses random requests. The backups must
// succeed anyway.
func TestServerThatIsNotWell(t *testing.T) {
	needsServer(t)
	server := s3test.Start(t)
	random := rand.New(rand.NewPCG(soak.Seed(t), 0))
	proxy := s3test.NewProxy(t, server.Address, func(int, *http.Request) s3test.Fault {
		if random.IntN(4) == 0 {
			return s3test.Fault(1 + random.IntN(int(s3test.CutResponse)))
		}
		return s3test.NoFault
	})
	x := newStore(t)
	p := Location{At: s3test.At(proxy.Address, "a"), Keep: pebble.Keep{Last: 2}, KeyFile: newKey(t)}
	for i := range soak.Times(t, 3) {
		x.write()
		dir := x.makeSnapshot()
		stats, err := p.Backup(t.Context(), dir, name(i), time.Now())
		require.NoError(t, err)
		require.Equal(t, hashFiles(t, dir), restoreAndHash(t, p, ""))
		if i > 0 {
			require.Less(t, stats.Copied, stats.Files)
		}
	}
	t.Logf("%d requests", proxy.RequestCount())
}

// TestServerThatDies makes a backup to a server that stops responding after some requests. The last request is
// interrupted before or after it is processed. All existing backups must be complete.
func TestServerThatDies(t *testing.T) {
	needsServer(t)
	random := rand.New(rand.NewPCG(soak.Seed(t), 0))
	server := s3test.Start(t)
	x := newStore(t)
	x.write()
	first := x.makeSnapshot()
	x.write()
	second := x.makeSnapshot()
	var requests int
	for i := range soak.Times(t, 8) + 1 { // The first run measures the number of requests.
		prefix := fmt.Sprint("p", i)
		direct := Location{At: s3test.At(server.Address, prefix), Keep: pebble.Keep{Last: 1}}
		_, err := direct.Backup(t.Context(), first, name(1), time.Now())
		require.NoError(t, err)
		dies := random.IntN(max(1, requests))
		how := []s3test.Fault{s3test.CutRequest, s3test.LoseResponse}[random.IntN(2)]
		ctx, cancel := context.WithCancel(t.Context())
		var dead atomic.Bool
		proxy := s3test.NewProxy(t, server.Address, func(n int, _ *http.Request) s3test.Fault {
			switch {
			case requests == 0 || n < dies && !dead.Load():
				return s3test.NoFault
			case dead.Swap(true):
				return s3test.CutRequest
			}
			time.AfterFunc(time.Second, cancel) // A backup must not wait forever.
			return how
		})
		p := direct
		p.At = s3test.At(proxy.Address, prefix)
		_, err = p.Backup(ctx, second, name(2), time.Now())
		cancel()
		if requests == 0 {
			require.NoError(t, err)
			requests = proxy.RequestCount()
			t.Logf("a backup makes %d requests", requests)
		}
		got := restoreAndHash(t, direct, "")
		if err == nil {
			require.Equal(t, hashFiles(t, second), got)
		} else {
			require.Contains(t, []any{hashFiles(t, first), hashFiles(t, second)}, any(got), "request %d: %v", dies, err)
		}
		_, err = direct.Backup(t.Context(), second, name(3), time.Now())
		require.NoError(t, err, "what is left isn't in the way")
		require.Equal(t, hashFiles(t, second), restoreAndHash(t, direct, ""))
	}
}

// TestSchedule checks the status, the metrics and the start times of scheduled backups, also after a restart, while the
// server of the bucket is unavailable, and while the clock is wrong.
func TestSchedule(t *testing.T) {
	needsServer(t)
	server := s3test.Start(t)
	var broken atomic.Bool
	proxy := s3test.NewProxy(t, server.Address, func(int, *http.Request) s3test.Fault {
		if broken.Load() {
			return s3test.Unavailable
		}
		return s3test.NoFault
	})
	x := newStore(t)
	x.write()
	for _, at := range []string{s3test.At(proxy.Address, "scheduled"), filepath.Join(t.TempDir(), "folder")} {
		now, number := time.Unix(1.7e9, 0).UTC(), 0
		registry := prometheus.NewRegistry()
		o := ScheduleOptions{
			Place: Location{At: at, Keep: pebble.Keep{Last: 2}}, Every: time.Hour, Store: x.id, Snapshot: x.snapshot,
			Folder: filepath.Join(x.dir, "snapshots"), Now: func() time.Time { return now },
			Logger: slog.New(slog.DiscardHandler), Registerer: registry,
			NewName: func(at time.Time) string {
				number++
				return at.UTC().Format("20060102T150405Z") + "-" + fmt.Sprint(number)
			},
		}
		s := NewSchedule(o)
		require.Zero(t, s.untilFirst(t.Context()), "there is none")
		require.Nil(t, s.Status().LastSuccess)
		for range 3 {
			require.NoError(t, s.makeBackup(t.Context()))
			now = now.Add(20 * time.Minute)
		}
		status := s.Status()
		require.Len(t, status.Stored, 2)
		require.Len(t, status.Runs, 3)
		require.Equal(t, status.Runs[0].Name, status.Stored[0].Name)
		require.Equal(t, 1, status.Runs[0].Removed)
		for i := range status.Stored {
			require.Positive(t, status.Stored[i].Bytes)
			require.Equal(t, []any{status.Runs[i].Files, status.Runs[i].Bytes}, []any{
				status.Stored[i].Files, status.Stored[i].Bytes,
			})
		}
		require.True(t, status.LastSuccess.Equal(now.Add(-20*time.Minute)))

		o.Registerer = prometheus.NewRegistry()
		again := NewSchedule(o)
		require.Equal(t, 40*time.Minute, again.untilFirst(t.Context()), "as if the process hadn't been started anew")
		require.Equal(t, status.Stored, again.Status().Stored, "sizes included, which the backups' own lists have")
		require.InDelta(t, status.Runs[0].Bytes, testutil.ToFloat64(again.metrics.bytes), 0)
		now = now.Add(-48 * time.Hour)
		require.Equal(t, time.Hour, NewSchedule(withRegisterer(o, prometheus.NewRegistry())).untilFirst(t.Context()),
			"the clock was wrong, or is")
		now = now.Add(96 * time.Hour)
		require.Zero(t, NewSchedule(withRegisterer(o, prometheus.NewRegistry())).untilFirst(t.Context()))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP cassia_backups_total Scheduled backups by result. The backup of a damaged store counts as failed.
# TYPE cassia_backups_total counter
cassia_backups_total{result="failure"} 0
cassia_backups_total{result="success"} 3
# HELP cassia_backup_last_success_timestamp_seconds Start time of the newest complete backup, by this process or an earlier one, in Unix seconds; 0 if there is none.
# TYPE cassia_backup_last_success_timestamp_seconds gauge
cassia_backup_last_success_timestamp_seconds 1.7000024e+09
`), "cassia_backups_total", "cassia_backup_last_success_timestamp_seconds"))

		if o.Place.InBucket() {
			broken.Store(true)
			require.Error(t, s.makeBackup(t.Context()))
			broken.Store(false)
			status = s.Status()
			require.Contains(t, status.Runs[0].Error, "after up to 20 attempts")
			require.False(t, status.Runs[0].Made)
			require.Nil(t, status.Running)
		}
		left, err := filepath.Glob(filepath.Join(x.dir, "snapshots", "*"))
		require.NoError(t, err)
		require.Empty(t, left, "snapshots take space")

		now = time.Unix(1.6e9, 0) // While the clock is wrong, backups are made but none is removed.
		before := len(s.Status().Stored)
		require.NoError(t, s.makeBackup(t.Context()))
		require.NoError(t, s.makeBackup(t.Context()))
		require.Len(t, s.Status().Stored, before+2)
		require.Equal(t, s.Status().Stored[0].Name, s.Status().Runs[0].Future)
	}
}

func withRegisterer(o ScheduleOptions, r prometheus.Registerer) ScheduleOptions {
	o.Registerer = r
	return o
}

// TestScheduleSaysWhatFailed checks that errors don't contain names of packages.
func TestScheduleSaysWhatFailed(t *testing.T) {
	t.Parallel()
	x := newStore(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s := NewSchedule(ScheduleOptions{
		Place: Location{At: filepath.Join(file, "folder")}, Every: time.Hour, Store: x.id, Snapshot: x.snapshot,
		Folder: filepath.Join(x.dir, "snapshots"), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
		NewName:    func(at time.Time) string { return at.UTC().Format("20060102T150405Z") + "-1" },
	})
	require.Error(t, s.makeBackup(t.Context()))
	status := s.Status()
	require.Regexp(t, "^backup folder: .*not a directory$", status.Runs[0].Error)
	require.Regexp(t, "^backup folder: .*not a directory$", status.StoredError)
}

// TestScheduleRuns checks that a schedule makes a backup and stops when its context ends.
func TestScheduleRuns(t *testing.T) {
	t.Parallel()
	x := newStore(t)
	s := NewSchedule(ScheduleOptions{
		Place: Location{At: filepath.Join(t.TempDir(), "folder")}, Every: time.Hour, Store: x.id, Snapshot: x.snapshot,
		Folder: filepath.Join(x.dir, "snapshots"), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
		NewName:    func(at time.Time) string { return at.UTC().Format("20060102T150405Z") + "-1" },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool {
		st := s.Status()
		return len(st.Stored) == 1 && st.Next.After(time.Now().Add(50*time.Minute))
	}, 3*time.Minute, 10*time.Millisecond)
	cancel()
	<-ended
	require.False(t, (*Schedule)(nil).Status().Enabled)
}

// TestFolderOfADiskThatIsNotMounted checks that a warning is logged if the folder of the backups has become empty,
// which may mean that its disk isn't mounted.
func TestFolderOfADiskThatIsNotMounted(t *testing.T) {
	t.Parallel()
	x := newStore(t)
	x.write()
	folder := filepath.Join(t.TempDir(), "backups")
	var log bytes.Buffer
	i := 0
	o := ScheduleOptions{
		Place: Location{At: folder, Keep: pebble.Keep{Last: 1}}, Every: time.Hour, Store: x.id, Snapshot: x.snapshot,
		Folder: filepath.Join(x.dir, "snapshots"), Now: time.Now, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Registerer: prometheus.NewRegistry(),
		NewName:    func(time.Time) string { i++; return name(i) },
	}
	s := NewSchedule(o)
	for range 2 {
		require.NoError(t, s.makeBackup(t.Context()))
	}
	require.NotContains(t, log.String(), "check that its disk is mounted. This backup shares no files with them",
		"it is new, and older backups are removed by --keep")
	require.NoError(t, os.Rename(folder, folder+" unmounted"))
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, s.makeBackup(t.Context()))
	require.Contains(t, log.String(), folder+" has none of the earlier backups (the last one was "+name(2)+
		"); check that its disk is mounted. This backup shares no files with them")
	log.Reset()
	require.NoError(t, s.makeBackup(t.Context()))
	require.NotContains(t, log.String(), "check that its disk is mounted. This backup shares no files with them")
	other := Location{At: folder + " elsewhere"}
	require.Empty(t, other.LocationWarning(o.Folder, x.makeSnapshot()), "a folder that is new")
}

func TestPlaces(t *testing.T) {
	p := Location{At: "folder", KeyFile: "x"}
	require.ErrorContains(t, p.Validate(),
		"the key encrypts backups in a bucket (s3://…) only; backups in a folder aren't encrypted")
	p = Location{At: "s3://bucket/x", KeyFile: "nowhere"}
	require.ErrorContains(t, p.Validate(), "backup key: open nowhere")
	p = Location{At: "folder", Keep: pebble.Keep{Daily: -1}}
	require.ErrorContains(t, p.Validate(), "negative")
	p = Location{At: "s3://bucket/x?region=y"}
	require.NoError(t, p.Validate())
	require.Equal(t, "s3://bucket/x/name", p.Name("name"))
}
