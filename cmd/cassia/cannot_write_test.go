package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/soak"
)

// outcome is the expected behavior of cassia while its files can't be written. In each case, cassia logs at most one
// line per reason and minute. SIGTERM stops cassia with status 0, unless it has already exited. After the cause has
// been removed, all acknowledged samples are readable.
type outcome string

const (
	// keepsWaiting: the process is alive, but not ready, and reports the reason. It continues by itself once the cause
	// has been removed.
	keepsWaiting outcome = "waits"
	// goesOn: the process stays ready and serves queries. It accepts samples again once the cause has been removed.
	goesOn outcome = "goes on"
	// exitsWithError: the process prints the reason in one line and exits with status 1. If it is started again, it
	// waits.
	exitsWithError outcome = "ends"
	// endsLater: if the log or the manifest can't be written, the process behaves as in exitsWithError, and otherwise
	// as in goesOn.
	endsLater outcome = "goes on, or ends"
)

// phases contains the activities during which a cause starts, by name.
var phases = map[string]func(c *cannotWrite, want outcome){
	"start":      (*cannotWrite).phaseStart,
	"replay":     (*cannotWrite).phaseReplay,
	"flush":      (*cannotWrite).phaseFlush,
	"seal":       (*cannotWrite).phaseSeal,
	"compaction": (*cannotWrite).phaseCompaction,
	"checkpoint": (*cannotWrite).phaseCheckpoint,
	"backup":     (*cannotWrite).phaseBackup,
	"restore":    (*cannotWrite).phaseRestore,
	"import":     (*cannotWrite).phaseImport,
	"shutdown":   (*cannotWrite).phaseShutdown,
}

// outcomes contains the expected outcome for each phase and cause. The troubleshooting page of the manual summarizes
// this table.
var outcomes = map[string]map[string]outcome{
	"start":      {"no space": keepsWaiting, "no inodes": keepsWaiting, "no file handles": keepsWaiting, "read-only mount": keepsWaiting, "quota": keepsWaiting, "I/O errors": exitsWithError, "permission": keepsWaiting},
	"replay":     {"no space": keepsWaiting, "no inodes": keepsWaiting, "no file handles": keepsWaiting, "read-only mount": keepsWaiting, "quota": keepsWaiting, "I/O errors": exitsWithError, "permission": keepsWaiting},
	"flush":      {"no space": exitsWithError, "no inodes": exitsWithError, "no file handles": exitsWithError, "read-only mount": exitsWithError, "quota": exitsWithError, "I/O errors": exitsWithError, "permission": exitsWithError},
	"seal":       {"no space": endsLater, "no inodes": endsLater, "no file handles": endsLater, "read-only mount": endsLater, "quota": endsLater, "I/O errors": endsLater, "permission": endsLater},
	"compaction": {"no space": endsLater, "no inodes": endsLater, "no file handles": endsLater, "read-only mount": endsLater, "quota": endsLater, "I/O errors": endsLater, "permission": endsLater},
	"checkpoint": {"no space": goesOn, "no inodes": goesOn, "no file handles": goesOn, "read-only mount": goesOn, "quota": goesOn, "I/O errors": goesOn, "permission": goesOn},
	"backup":     {"no space": exitsWithError, "no inodes": exitsWithError, "no file handles": exitsWithError, "read-only mount": exitsWithError, "quota": exitsWithError, "I/O errors": exitsWithError, "permission": exitsWithError},
	"restore":    {"no space": exitsWithError, "no inodes": exitsWithError, "no file handles": exitsWithError, "read-only mount": exitsWithError, "quota": exitsWithError, "I/O errors": exitsWithError, "permission": exitsWithError},
	"import":     {"no space": exitsWithError, "no inodes": exitsWithError, "no file handles": exitsWithError, "read-only mount": exitsWithError, "quota": exitsWithError, "I/O errors": exitsWithError, "permission": exitsWithError},
	"shutdown":   {"no space": exitsWithError, "no inodes": exitsWithError, "no file handles": exitsWithError, "read-only mount": exitsWithError, "quota": exitsWithError, "I/O errors": exitsWithError, "permission": exitsWithError},
}

// TestServerThatCannotWrite tests a random part of the table outcomes in each run, and the whole table in a soak test.
func TestServerThatCannotWrite(t *testing.T) {
	if os.Getenv(cannotArgs) != "" {
		runThatCannotWrite()
	}
	type cell struct{ phase, cause string }
	var cells []cell
	for phase := range phases {
		require.Equal(t, slices.Sorted(maps.Keys(causes)), slices.Sorted(maps.Keys(outcomes[phase])),
			"the table has a cell of %q for each cause", phase)
		for cause := range causes {
			cells = append(cells, cell{phase, cause})
		}
	}
	require.Len(t, outcomes, len(phases))
	slices.SortFunc(cells, func(a, b cell) int { return strings.Compare(a.phase+a.cause, b.phase+b.cause) })
	random := rand.New(rand.NewPCG(soak.Seed(t), 0))
	random.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	for _, x := range cells[:min(len(cells), soak.Amount(t, 8, len(cells)))] {
		t.Run(strings.ReplaceAll(x.phase+"/"+x.cause, " ", "_"), func(t *testing.T) {
			t.Parallel()
			phases[x.phase](newCannotWrite(t, x.cause), outcomes[x.phase][x.cause])
		})
	}
}

// reason returns the error text of the cause.
func (c *cannotWrite) reason() string { return causes[c.cause].errno.Error() }

// startFilled starts a server and writes the given number of requests.
func (c *cannotWrite) startFilled(requests int) *child {
	p := c.serve()
	p.waitReady()
	for range requests {
		require.True(c.t, p.writeMetrics(100))
	}
	return p
}

func (c *cannotWrite) phaseStart(want outcome) {
	require.Zero(c.t, c.startFilled(3).stop())
	c.injectCause()
	c.cannotOpen(want)
}

func (c *cannotWrite) phaseReplay(want outcome) {
	c.startFilled(9).kill()
	c.table = true
	c.injectCause()
	c.cannotOpen(want)
}

// cannotOpen requires the outcome for a server that can't open its store.
func (c *cannotWrite) cannotOpen(want outcome) {
	for _, isLast := range []bool{false, true} {
		p := c.serve()
		if want == exitsWithError {
			c.requireEnded(p)
			continue
		}
		require.Eventually(c.t, func() bool {
			code, text := p.request(http.MethodGet, "/-/ready", nil)
			return code == http.StatusServiceUnavailable && strings.Contains(text, c.reason()) || p.hasEnded()
		}, cassiatest.Patience, 5*time.Millisecond)
		require.False(c.t, p.hasEnded())
		require.Equal(c.t, http.StatusOK, p.statusCode("/-/healthy"))
		require.Equal(c.t, http.StatusOK, p.statusCode("/metrics"))
		for _, path := range []string{"/api/v1/query?query=up", "/api/v1/labels", "/"} {
			code, text := p.request(http.MethodGet, path, nil)
			require.Equal(c.t, http.StatusServiceUnavailable, code)
			require.Contains(c.t, text, c.reason())
		}
		require.False(c.t, p.writeMetrics(1))
		c.requireFewLines(p)
		if isLast {
			c.removeCause()
			c.requireWell(p)
			return
		}
		require.Zero(c.t, p.stop())
	}
	c.removeCause()
	c.requireWell(c.serve())
}

// requireEnded waits until a process has exited by itself and requires that it printed the reason.
func (c *cannotWrite) requireEnded(p *child) {
	c.t.Helper()
	require.Equal(c.t, 1, p.wait(), "%v", p.cmd.ProcessState)
	last := cassiatest.LastLine(p.log.String())
	require.True(c.t, strings.HasPrefix(last, "cassia: "), last)
	require.Contains(c.t, last, c.reason())
	c.requireFewLines(p)
}

var changingCommands = regexp.MustCompile(`time=\S+|[0-9]+`)

// requireFewLines requires that the process logged at most one line per reason and minute.
func (c *cannotWrite) requireFewLines(p *child) {
	c.t.Helper()
	lines := map[string]int{}
	for line := range strings.Lines(p.log.String()) {
		lines[changingCommands.ReplaceAllString(line, "")]++
	}
	for line, n := range lines {
		require.LessOrEqual(c.t, n, 3, line)
	}
}

// requireWell requires that a server returns all acknowledged samples, accepts new ones, and stops when requested.
func (c *cannotWrite) requireWell(p *child) {
	c.t.Helper()
	p.requireAll()
	require.True(c.t, p.writeMetrics(10))
	p.requireAll()
	require.Zero(c.t, p.stop())
}

// cannotGoOn requires the outcome for a server that was running when the cause started.
func (c *cannotWrite) cannotGoOn(p *child, want outcome) {
	c.t.Helper()
	switch {
	case want == endsLater && !p.hasEnded():
		require.Contains(c.t, []int{http.StatusOK, 0}, p.statusCode("/-/healthy"))
		if p.stop() != 0 { // The log couldn't be written in the meantime.
			c.requireEnded(p)
		}
		c.requireFewLines(p)
	case want != goesOn:
		c.requireEnded(p)
		require.Contains(c.t, p.log.String(), "can't write data any more")
	default:
		require.Equal(c.t, http.StatusOK, p.statusCode("/-/healthy"))
		p.requireAll()
		c.removeCause()
		require.Eventually(c.t, func() bool { return p.writeMetrics(1) }, cassiatest.Patience, 10*time.Millisecond)
		p.requireAll()
		c.injectCause()
		c.requireFewLines(p)
		require.Zero(c.t, p.stop())
	}
	c.removeCause()
	c.requireWell(c.serve())
}

func (c *cannotWrite) phaseFlush(want outcome) {
	p := c.startFilled(3)
	c.injectCause()
	c.writeUntilRefused(p)
	c.cannotGoOn(p, want)
}

// writeUntilRefused writes until a request is rejected. The writes fill the memtables, so that files have to be
// created.
func (c *cannotWrite) writeUntilRefused(p *child) {
	for range 100 {
		if !p.writeMetrics(100) {
			return
		}
	}
}

func (c *cannotWrite) phaseSeal(want outcome) {
	p := c.startFilled(3)
	c.injectCause()
	code, text := p.request(http.MethodPost, "/-/seal", nil)
	require.Contains(
		c.t, []int{0, http.StatusOK, http.StatusInternalServerError, http.StatusServiceUnavailable}, code, text,
	)
	c.cannotGoOn(p, want)
}

func (c *cannotWrite) phaseCompaction(want outcome) {
	p := c.startFilled(12)
	code, text := p.request(http.MethodPost, "/-/seal", nil)
	require.Equal(c.t, http.StatusOK, code, text)
	c.injectCause() // Staged rows are deleted after sealing, and the files are compacted.
	c.writeUntilRefused(p)
	c.cannotGoOn(p, want)
}

func (c *cannotWrite) phaseCheckpoint(want outcome) {
	// Only operations on snapshots fail.
	c.path = string(filepath.Separator) + snapshotsFolder + string(filepath.Separator)
	p := c.startFilled(3)
	c.injectCause()
	code, text := p.request(http.MethodPost, "/api/v1/admin/tsdb/snapshot", nil)
	require.Contains(c.t, []int{0, http.StatusInternalServerError, http.StatusServiceUnavailable}, code, text)
	c.cannotGoOn(p, want)
}

func (c *cannotWrite) phaseShutdown(want outcome) {
	p := c.startFilled(12)
	c.injectCause()
	if p.stop() != 0 { // If the engine was writing its manifest when the cause started, cassia exits.
		require.Contains(c.t, p.log.String(), "can't write data any more")
	}
	c.requireFewLines(p)
	c.removeCause()
	c.requireWell(c.serve())
}

// runCommand runs a command while file operations fail, and requires the outcome.
func (c *cannotWrite) runCommand(want outcome, args ...string) {
	c.t.Helper()
	c.injectCause()
	c.requireEnded(c.start(args...))
	c.removeCause()
	p := c.start(args...)
	require.Zero(c.t, p.wait(), p.log)
}

func (c *cannotWrite) phaseBackup(want outcome) {
	require.Zero(c.t, c.startFilled(3).stop())
	to := filepath.Join(filepath.Dir(c.dir), "backups")
	c.runCommand(want, "backup", "--storage.path="+c.dir, "--to="+to)
	c.dir = filepath.Join(filepath.Dir(c.dir), "restored")
	require.Zero(c.t, c.start("restore", "--storage.path="+c.dir, "--from="+to).wait())
	c.requireWell(c.serve())
}

func (c *cannotWrite) phaseRestore(want outcome) {
	require.Zero(c.t, c.startFilled(3).stop())
	to := filepath.Join(filepath.Dir(c.dir), "backups")
	require.Zero(c.t, c.start("backup", "--storage.path="+c.dir, "--to="+to).wait())
	c.dir = filepath.Join(filepath.Dir(c.dir), "restored")
	c.runCommand(want, "restore", "--storage.path="+c.dir, "--from="+to)
	c.requireWell(c.serve())
}

func (c *cannotWrite) phaseImport(want outcome) {
	require.Zero(c.t, c.startFilled(3).stop())
	file := filepath.Join(filepath.Dir(c.dir), "samples.txt")
	text := strings.Builder{}
	at := time.Now().Add(-30 * time.Minute).Unix()
	for i := range 100 {
		fmt.Fprintf(&text, "kept_%d{imported=\"yes\"} 1 %d\n", c.tried+i, at)
	}
	require.NoError(c.t, os.WriteFile(file, []byte(text.String()+"# EOF\n"), 0o600))
	c.runCommand(want, "import", "openmetrics", "--storage.path="+c.dir, file)
	c.tried += 100
	c.acked += 100
	c.requireWell(c.serve())
}

// TestBelowReserve checks that on an almost full disk cassia starts and accepts deletes, but rejects samples.
func TestBelowReserve(t *testing.T) {
	c := newCannotWrite(t, belowReserve)
	free := func(mib int) {
		require.NoError(t, os.WriteFile(c.file, []byte(strconv.Itoa(mib<<20)), 0o600))
	}
	p := c.startFilled(1)
	sealed := func(metric int) string {
		code, text := p.request(http.MethodGet, fmt.Sprintf("/api/v1/query?query=kept_%d", metric), nil)
		require.Equal(t, http.StatusOK, code, text)
		return text
	}
	remove := func(metric int) (int, string) {
		return p.request(http.MethodPost, fmt.Sprintf("/api/v1/admin/tsdb/delete_series?match[]=kept_%d", metric), nil)
	}
	unsealed := 0
	for _, seal := range []bool{true, false} {
		if seal {
			code, text := p.request(http.MethodPost, "/-/seal", nil)
			require.Equal(t, http.StatusOK, code, text)
		}
		free(300)
		require.False(t, p.writeMetrics(1))
		metric := 3 // sealed
		if !seal {
			metric = unsealed
		}
		require.Contains(t, sealed(metric), `"noise"`)
		code, text := remove(metric)
		require.Equal(t, http.StatusNoContent, code, text)
		require.NotContains(t, sealed(metric), `"noise"`)
		code, text = p.request(http.MethodPost, "/api/v1/admin/tsdb/clean_tombstones", nil)
		require.Equal(t, http.StatusNoContent, code, text)
		require.Zero(t, p.stop())
		p = c.serve()
		p.waitReady()
		require.NotContains(t, sealed(metric), `"noise"`)
		require.NoError(t, os.Remove(c.file))
		unsealed = c.tried
		require.True(t, p.writeMetrics(1), "there is room again")
	}
	code, text := p.request(http.MethodPost, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	clean := func(want int) string {
		code, text := p.request(http.MethodPost, "/api/v1/admin/tsdb/clean_tombstones", nil)
		require.Equal(t, want, code, text)
		return text
	}
	free(40)
	clean(http.StatusNoContent) // There are no deleted samples.
	free(300)
	code, text = remove(4)
	require.Equal(t, http.StatusNoContent, code, text)
	free(40)
	require.Contains(t, clean(http.StatusServiceUnavailable),
		"deleted samples still take disk space: unavailable: the disk of ")
	code, text = remove(5)
	require.Equal(t, http.StatusServiceUnavailable, code, text)
	require.Contains(t, text, "writing the delete: unavailable: the disk of ")
	require.Contains(t, text, "are kept in reserve; free disk space")
}
