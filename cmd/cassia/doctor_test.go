package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// runDoctor runs doctor with the given flags at the given time.
func runDoctor(
	t *testing.T, now time.Time, retention time.Duration, flags ...string,
) (found []doctor.Finding, text string, err error) {
	t.Helper()
	return examineAs(
		t, &examination{retention: config.Retention{Raw: retention}, now: func() time.Time { return now }}, flags...,
	)
}

// examineFiles is like examine, but without a retention, and it verifies all files.
func examineFiles(t *testing.T, now time.Time, flags ...string) (found []doctor.Finding, text string, err error) {
	t.Helper()
	return examineAs(t, &examination{verifiesFiles: true, now: func() time.Time { return now }}, flags...)
}

func examineAs(t *testing.T, x *examination, flags ...string) (found []doctor.Finding, text string, err error) {
	t.Helper()
	app := kingpin.New("cassia", "")
	x.Engine = config.RegisterEngine(app.Command("doctor", ""))
	_, err = app.Parse(append([]string{"doctor"}, flags...))
	require.NoError(t, err)
	require.NoError(t, x.Validate())
	found = x.run(t.Context())
	var b bytes.Buffer
	err = printFindings(t.Context(), x.Location(), found, &b, false)
	return found, b.String(), err
}

// storeBy opens a store as a server does, and writes one sample.
func storeBy(t *testing.T, retention time.Duration, flags ...string) (stop func()) {
	t.Helper()
	app := kingpin.New("cassia", "")
	c := config.RegisterEngine(app.Command("serve", ""))
	_, err := app.Parse(append([]string{"serve"}, flags...))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	c.Cassandra.Retention = retention
	eng, err := openEngine(t.Context(), c, openOptions{log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s := storagetest.Start(t, eng, func(o *storage.Options) {
		o.Shared = c.Kind == config.EngineCassandra
		o.Self, o.Retention = membership.Process{Name: "a test", Target: "all", StartedMS: 1}, retention
	})
	storagetest.Write(
		t, s, "default", labels.FromStrings("__name__", "up"), storagetest.FloatSample{T: time.Now().UnixMilli(), V: 1},
	)
	return func() {
		require.NoError(t, s.Close())
		require.NoError(t, eng.Close())
	}
}

const month = 30 * 24 * time.Hour

func TestDoctorOnADirectory(t *testing.T) {
	dir := t.TempDir()
	path := "--storage.path=" + dir
	_, text, err := runDoctor(t, time.Now(), month, path+"/none")
	require.ErrorContains(t, err, "1 error")
	require.Contains(t, text, "directory not found")

	_, text, err = runDoctor(t, time.Now(), month, path)
	require.ErrorContains(t, err, "1 error")
	require.Contains(t, text, "there is no store yet")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is made")

	foreign := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(foreign, "chunks_head"), 0o755))
	_, text, err = runDoctor(t, time.Now(), month, "--storage.path="+foreign)
	require.ErrorContains(t, err, "1 error")
	require.Contains(t, text, "chunks_head")

	stop := storeBy(t, month, path)
	_, text, err = runDoctor(t, time.Now(), month, path)
	require.NoError(t, err)
	require.Contains(t, text, "the store is in use by a running process and can't be examined from outside")
	require.Contains(t, text, "cassia doctor --url=")
	stop()

	_, text, err = runDoctor(t, time.Now(), month, path)
	require.NoError(t, err)
	require.Contains(t, text, "1 slot with unsealed samples, counted once per partition; 0 are due")
	require.Regexp(t, ` uses .*; .* of .* free\n`, text)
	require.Contains(t, text,
		"not examined, because a data directory has only one process: nodes, replication, commit log, schema, clocks, processes, leases")

	found, text, err := runDoctor(t, time.Now().Add(48*time.Hour), month, path)
	require.ErrorContains(t, err, path)
	require.Equal(t, doctor.Error, found[0].Level)
	require.Contains(t, text, "; 1 (1 slot) overdue")
}

func TestDoctorOnCassandra(t *testing.T) {
	t.Parallel()
	flags := append(cassiatest.OnCassandra(t), "--cassandra.timeout=1m")
	_, text, err := runDoctor(t, time.Now(), month, flags...)
	require.NoError(t, err)
	require.Contains(t, text, "doesn't exist")

	stop := storeBy(t, month, flags...)
	defer stop()
	var found []doctor.Finding
	for asked := time.Now(); ; {
		found, text, err = runDoctor(t, time.Now(), month, flags...)
		require.NoError(t, err, text)
		// On a busy machine, a process may send no heartbeat for longer than doctor waits.
		if !strings.Contains(text, "no running process was found") || time.Since(asked) > cassiatest.Patience {
			break
		}
	}
	require.Zero(t, doctor.CountLevel(found, doctor.Error), text)
	require.Contains(t, text, "1 process: a test (all)")
	require.Contains(t, text, "the tables match this release")
	require.Contains(t, text,
		"16 of 16 partitions have no running owner: 0, 1, 2, 3, 4 and 11 more", "nothing seals here")
	require.Contains(t, text, "; 0 are due")

	_, text, err = runDoctor(t, time.Now(), 12*month, flags...)
	require.NoError(t, err)
	require.Contains(t, text, "warning  table raw: its compaction_window is 1 DAYS; this release uses 12 DAYS")
	require.Contains(t, text, "ALTER TABLE "+flags[2][len("--cassandra.keyspace="):]+
		".raw WITH compaction = {'class': 'TimeWindowCompactionStrategy'")

	// alter runs `schema alter`, whose statements are those that doctor recommends.
	alter := func(dry bool) string {
		app := kingpin.New("cassia", "")
		e := config.RegisterEngine(app.Command("schema", ""))
		_, err := app.Parse(append([]string{"schema"}, flags...))
		require.NoError(t, err)
		require.NoError(t, e.Validate())
		e.Cassandra.Retention = 12 * month
		var b bytes.Buffer
		require.NoError(t, alterSchema(t.Context(), e.Cassandra, dry, &b))
		return b.String()
	}
	statements := alter(true)
	require.Contains(t, statements, ".raw WITH compaction = {'class': 'TimeWindowCompactionStrategy'")
	require.Equal(t, statements, alter(false))
	require.Equal(t, "-- the tables match this version\n", alter(false))
	_, text, err = runDoctor(t, time.Now(), 12*month, flags...)
	require.NoError(t, err)
	require.Contains(t, text, "the tables match this release")
	_, text, err = runDoctor(t, time.Now(), month, flags...)
	require.NoError(t, err)

	_, nobody, err := runDoctor(t, time.Now(), month, "--storage.engine=cassandra", "--cassandra.hosts=127.0.0.1:1")
	require.ErrorContains(t, err, "1 error")
	require.Contains(t, nobody, "no host responds; check that Cassandra is running there and accepts CQL connections")

	if !strings.Contains(text, "a single node") {
		return
	}
	_, text, err = runDoctor(t, time.Now(), month, append(flags, "--cassandra.consistency=TWO")...)
	require.ErrorContains(t, err, "error")
	require.Contains(t, text, "every write and every query fails")
	require.Contains(t, text,
		"the store can't be opened: cassandra: consistency level TWO needs 2 copies, but keyspace")
}
