package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage/soak"
)

// bucketed is a server under load that is backed up to a bucket or a folder by the backup command.
type bucketed struct {
	*killed
	binary, data, to string
	key              []string // the flag --key-file; empty for a folder
	flags            []string
	restores         time.Duration // duration of the last restore
	// at contains, by the name of a backup, the samples acknowledged before the backup started. The key "" is the last
	// killed backup, whose name is unknown.
	at map[string]*killed
}

func newBucketed(t *testing.T, inFolder bool) *bucketed {
	binary, home := builtCassia(t), t.TempDir()
	b := &bucketed{binary: binary, data: filepath.Join(home, "data"), at: map[string]*killed{}}
	if inFolder {
		b.to = filepath.Join(t.TempDir(), "backups")
	} else {
		identity, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		key := filepath.Join(home, "key")
		require.NoError(t, os.WriteFile(key, []byte(identity.String()), 0o600))
		b.to, b.key = s3test.At(s3test.Start(t).Address, "some/prefix"), []string{"--key-file=" + key}
	}
	b.flags = []string{"--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d", "--no-self-monitoring"}
	program := promrig.Cassia(binary, home, cassiatest.FreeAddress(t), b.flags...)
	b.killed = newKilled(t, killLoads(t, time.Now())[:2], program)
	b.processes = []*promrig.Process{start(b.ctx, t, program)}
	return b
}

func (b *bucketed) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, b.binary, append(args, b.key...)...)
	c.Env = append(os.Environ(), s3test.Environment...)
	return c
}

func (b *bucketed) backup(ctx context.Context) *exec.Cmd {
	return b.command(ctx, "backup", "--storage.path="+b.data, "--to="+b.to, "--url="+b.processes[0].URL(), "--keep=2",
		"--keep-hourly=2")
}

// backedUp matches the name of the backup in the output of a successful command.
var backedUp = regexp.MustCompile(`(?m)^backup \S*/(\d{8}T\d{6}Z-[0-9a-f]+): `)

// whole makes a complete backup.
func (b *bucketed) whole() (took time.Duration) {
	known, begun := b.known(), time.Now()
	out, err := b.backup(b.ctx).CombinedOutput()
	require.NoError(b.t, err, "%s", out)
	found := backedUp.FindSubmatch(out)
	require.NotNil(b.t, found, "%s", out)
	b.at[string(found[1])] = known
	return time.Since(begun)
}

// cut starts a backup and kills the command after the given time. The backup may be complete anyway, so its samples are
// recorded in at.
func (b *bucketed) cut(after time.Duration) {
	known := b.known()
	ctx, cancel := context.WithTimeout(b.ctx, after)
	defer cancel()
	c := b.backup(ctx) // When ctx ends, the command is killed as by kill -9.
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		require.Error(b.t, ctx.Err(), "%s", out.String())
	}
	b.at[""] = known
}

// restoredName matches the name of the backup in the output of a restore.
var restoredName = regexp.MustCompile(`(?m)^restored (\S+), of `)

// verifyNewest restores the newest backup and compares its samples with the samples acknowledged before the backup
// started.
func (b *bucketed) verifyNewest() {
	dir := b.t.TempDir()
	restore := func(ctx context.Context) ([]byte, error) {
		return b.command(ctx, "restore", "--from="+b.to, "--storage.path="+filepath.Join(dir, "data")).CombinedOutput()
	}
	if b.restores > 0 { // Kill a restore first, unless it finishes before that.
		ctx, cancel := context.WithTimeout(b.ctx, time.Duration(b.rand.Int64N(int64(b.restores))))
		_, _ = restore(ctx)
		cancel()
		b.verifyCut(filepath.Join(dir, "data"))
	}
	begun := time.Now()
	out, err := restore(b.ctx)
	require.NoError(b.t, err, "%s", out)
	b.restores = time.Since(begun)
	require.Contains(b.t, string(out), ": 0 problems")
	name := string(restoredName.FindSubmatch(out)[1])
	known, ok := b.at[name]
	if !ok {
		known = b.at[""]
		b.at[name] = known
	}
	known.processes = []*promrig.Process{
		start(b.ctx, b.t, promrig.Cassia(b.binary, dir, cassiatest.FreeAddress(b.t), b.flags...)),
	}
	known.verify(0, "restored "+name)
	known.stop(0)
}

// verifyCut checks the directory of a killed restore. Either the restore is complete, and the directory is removed, or
// no command can open the directory.
func (b *bucketed) verifyCut(dir string) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) || len(entries) == 0 || len(entries) == 1 && entries[0].Name() == "LOCK" {
		return
	}
	require.NoError(b.t, err)
	out, err := exec.CommandContext(b.ctx, b.binary, "check", "--storage.path="+dir).CombinedOutput()
	if _, statErr := os.Stat(filepath.Join(dir, "RESTORING")); statErr == nil {
		require.Error(b.t, err)
		require.Contains(b.t, string(out),
			"a restore to this directory was started but not completed; restore again, or remove the directory")
		return
	}
	require.NoError(b.t, err, "%s", out)
	require.Contains(b.t, string(out), ": 0 problems")
	require.NoError(b.t, os.RemoveAll(dir))
}

// TestBackupsThatAreKilled makes encrypted backups of a server under load to a bucket and kills the command at random
// moments. The newest backup must contain all samples acknowledged before it started. It also kills restores.
func TestBackupsThatAreKilled(t *testing.T) { testBackupsThatAreKilled(t, false) }

// TestBackupsIntoAFolderThatAreKilled is like TestBackupsThatAreKilled, for unencrypted backups to a folder.
func TestBackupsIntoAFolderThatAreKilled(t *testing.T) { testBackupsThatAreKilled(t, true) }

func testBackupsThatAreKilled(t *testing.T, inFolder bool) {
	if testing.Short() {
		t.Skip("runs the binary under load: leave -short out")
	}
	t.Parallel()
	b := newBucketed(t, inFolder)
	stopLoads := b.startLoads()
	for _, l := range b.loads {
		require.Eventually(t, func() bool { return l.acks.Count() > 0 }, cassiatest.ReadyWithin, time.Millisecond,
			"something is acknowledged before")
	}
	took := b.whole()
	for range soak.Times(t, 3) {
		b.live(0)
		b.cut(time.Duration(b.rand.Int64N(int64(took))))
		b.verifyNewest()
	}
	b.whole()
	b.processes[0].Kill()
	stopLoads()
	b.verifyNewest()
	left, err := filepath.Glob(filepath.Join(b.data, "snapshots", "*"))
	require.NoError(t, err)
	require.Empty(t, left, "snapshots of killed commands, made before or after they were killed, and claims")
	if inFolder {
		left, err = filepath.Glob(filepath.Join(b.to, "*.part"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestBackupsOfServe checks that a server with a backup schedule makes backups to a bucket, and restores one of them.
func TestBackupsOfServe(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary: leave -short out")
	}
	t.Parallel()
	binary, home := builtCassia(t), t.TempDir()
	to := s3test.At(s3test.Start(t).Address, "scheduled")
	program := promrig.Cassia(binary, home, cassiatest.FreeAddress(t), "--backup.to="+to, "--backup.every=1h",
		"--backup.keep-daily=7", "--no-self-monitoring")
	program.Env = s3test.Environment
	server := start(t.Context(), t, program)
	get := func(path string) []byte {
		answer, err := http.Get(server.URL() + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return text
	}
	status := func() backups.Status {
		var answer struct{ Data backups.Status }
		require.NoError(t, json.Unmarshal(get("/api/v1/status/backups"), &answer))
		return answer.Data
	}
	require.Eventually(t, func() bool { return len(status().Stored) == 1 }, cassiatest.Patience, 10*time.Millisecond)
	s := status()
	require.True(t, s.Enabled)
	require.Equal(t, "s3://backups/scheduled", s.To)
	require.True(t, s.Runs[0].Made)
	require.Contains(t, string(get("/metrics")), `cassia_backups_total{result="success"} 1`)
	log, err := os.ReadFile(program.Log)
	require.NoError(t, err)
	for _, text := range [][]byte{log, get("/api/v1/status/flags"), get("/api/v1/status/backups"), get("/metrics")} {
		require.NotContains(t, string(text), s3test.SecretKey)
	}
	require.NoError(t, server.Terminate(cassiatest.StopWithin))
	server = start(t.Context(), t, program)
	require.Eventually(t, func() bool { return status().Next != nil }, cassiatest.Patience, 10*time.Millisecond)
	require.Empty(t, status().Runs, "a start makes no backup before it is due")
	require.Len(t, status().Stored, 1)

	out := exec.Command(binary, "restore", "--from="+to, "--storage.path="+filepath.Join(t.TempDir(), "data"))
	out.Env = append(os.Environ(), s3test.Environment...)
	text, err := out.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), ": 0 problems")
}
