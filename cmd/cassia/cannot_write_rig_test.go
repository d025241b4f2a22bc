package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/pebble/faultfs"
)

// The tests start their own binary again as a cassia process with write errors. These environment variables configure
// it.
const (
	cannotArgs  = "CASSIA_TEST_CANNOT_ARGS"  // the command line, as JSON
	cannotCause = "CASSIA_TEST_CANNOT_CAUSE" // the name of the cause, which defines the operations that fail
	cannotFile  = "CASSIA_TEST_CANNOT_FILE"  // the operations fail while this file exists
	cannotTable = "CASSIA_TEST_CANNOT_TABLE" // if set, nothing fails until the next sorted file is created
	cannotPath  = "CASSIA_TEST_CANNOT_PATH"  // the operations fail only on files whose path contains this text
)

// belowReserve is the cause in which no operation fails, but the disk reports only the number of free bytes written in
// cannotFile.
const belowReserve = "below the reserve"

// cause is a simulated reason why file operations fail.
type cause struct {
	errno syscall.Errno
	fails func(faultfs.FileOp) bool
}

func matchOps(kinds ...faultfs.FileOp) func(faultfs.FileOp) bool {
	return func(k faultfs.FileOp) bool {
		for _, kind := range kinds {
			if k == kind {
				return true
			}
		}
		return false
	}
}

var causes = map[string]cause{
	"no space":  {syscall.ENOSPC, matchOps(faultfs.Create, faultfs.Link, faultfs.MkdirAll, faultfs.Write)},
	"no inodes": {syscall.ENOSPC, matchOps(faultfs.Create, faultfs.MkdirAll)},
	"no file handles": {syscall.EMFILE, matchOps(
		faultfs.Create, faultfs.Open, faultfs.OpenDir, faultfs.Lock, faultfs.List, faultfs.Reuse,
	)},
	"read-only mount": {
		syscall.EROFS, matchOps(faultfs.Create, faultfs.Link, faultfs.MkdirAll, faultfs.Remove, faultfs.Rename,
			faultfs.Reuse, faultfs.Lock, faultfs.Write),
	},
	"quota": {syscall.EDQUOT, matchOps(faultfs.Create, faultfs.MkdirAll, faultfs.Write)},
	"I/O errors": {syscall.EIO, matchOps(faultfs.Read, faultfs.ReadAt, faultfs.Write, faultfs.Sync, faultfs.SyncData,
		faultfs.SyncTo)},
	"permission": {
		syscall.EACCES,
		matchOps(faultfs.Create, faultfs.Open, faultfs.OpenDir, faultfs.Lock, faultfs.List, faultfs.MkdirAll, faultfs.Remove,
			faultfs.Rename, faultfs.Reuse),
	},
}

// runThatCannotWrite is the main function of the process with write errors. It never returns.
func runThatCannotWrite() {
	var args []string
	if err := json.Unmarshal([]byte(os.Getenv(cannotArgs)), &args); err != nil {
		panic(err)
	}
	c, file, path := causes[os.Getenv(cannotCause)], os.Getenv(cannotFile), os.Getenv(cannotPath)
	var begun atomic.Bool
	begun.Store(os.Getenv(cannotTable) == "")
	files := faultfs.New(faultfs.Faults{
		Fail: func(op faultfs.FileOp, at string) error {
			if _, err := os.Lstat(file); err != nil || c.fails == nil {
				return nil
			}
			if op == faultfs.Create && strings.HasSuffix(at, ".sst") {
				begun.Store(true)
			}
			if begun.Load() && c.fails(op) && strings.Contains(at, path) {
				return &os.PathError{Op: "use", Path: at, Err: c.errno}
			}
			return nil
		},
		Free: func() (bytes uint64, ok bool) {
			text, err := os.ReadFile(file)
			if err == nil {
				bytes, err = strconv.ParseUint(string(text), 10, 64)
			}
			return bytes, err == nil
		},
	})
	pebbleOptions = func() pebble.Options {
		o := pebble.DefaultOptions()
		if o.FS = files; os.Getenv(cannotCause) == belowReserve {
			return o
		}
		o.MemTableBytes, o.ReserveBytes = 1<<20, 0
		o.DropDelay, o.StageDelay = 10*time.Millisecond, 10*time.Millisecond
		return o
	}
	status, _ := runCassia(args, os.Stderr)
	os.Exit(status)
}

// cannotWrite runs cassia processes in which file operations fail between injectCause and removeCause.
type cannotWrite struct {
	t     *testing.T
	cause string
	dir   string
	file  string
	table bool
	path  string
	rand  *rand.Rand
	acked int // number of metrics with an acknowledged sample
	tried int
}

func newCannotWrite(t *testing.T, cause string) *cannotWrite {
	top := t.TempDir()
	return &cannotWrite{
		t: t, cause: cause, dir: filepath.Join(top, "data"), file: filepath.Join(top, "fails"),
		rand: rand.New(rand.NewPCG(1, 2)),
	}
}

func (c *cannotWrite) injectCause() { require.NoError(c.t, os.WriteFile(c.file, nil, 0o600)) }
func (c *cannotWrite) removeCause() { require.NoError(c.t, os.Remove(c.file)) }

// child is a running cassia process.
type child struct {
	cassiatest.Server
	c     *cannotWrite
	cmd   *exec.Cmd
	log   *lockedBuffer
	ended chan struct{}
}

func (c *cannotWrite) start(args ...string) *child {
	text, err := json.Marshal(args)
	require.NoError(c.t, err)
	program, err := os.Executable()
	require.NoError(c.t, err)
	p := &child{
		c: c, log: &lockedBuffer{}, ended: make(chan struct{}),
		cmd: exec.Command(program, "-test.run=^TestServerThatCannotWrite$"),
	}
	p.cmd.Dir = filepath.Dir(c.dir) // Imports write their checkpoint to the working directory.
	p.cmd.Env = append(os.Environ(), cannotArgs+"="+string(text), cannotCause+"="+c.cause, cannotFile+"="+c.file,
		cannotPath+"="+c.path)
	if c.table {
		p.cmd.Env = append(p.cmd.Env, cannotTable+"=1")
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(c.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	c.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if c.t.Failed() {
			text := p.log.String()
			c.t.Logf("%v of the cause %q:\n%s", args, c.cause, text[:min(len(text), 8<<10)])
		}
	})
	return p
}

// serve starts a server and waits until its health check succeeds or the process has exited.
func (c *cannotWrite) serve() *child {
	address := cassiatest.FreeAddress(c.t)
	p := c.start("serve", "--storage.path="+c.dir, "--web.listen-address="+address, "--web.enable-admin-api",
		"--no-self-monitoring")
	p.URL = "http://" + address
	require.Eventually(c.t, func() bool { return p.hasEnded() || p.statusCode("/-/healthy") == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	return p
}

func (p *child) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// request sends a request and returns the status and the body of the response. The status is 0 if there was no
// response.
func (p *child) request(method, path string, body []byte) (int, string) {
	request, err := http.NewRequest(method, p.URL+path, bytes.NewReader(body))
	require.NoError(p.c.t, err)
	if body != nil {
		request.Header.Set("Content-Type", "application/x-protobuf")
		request.Header.Set("Content-Encoding", "snappy")
	}
	client := http.Client{Timeout: time.Minute}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

func (p *child) statusCode(path string) int {
	code, _ := p.request(http.MethodGet, path, nil)
	return code
}

func (p *child) waitReady() {
	p.c.t.Helper()
	require.Eventually(p.c.t, func() bool {
		require.False(p.c.t, p.hasEnded(), "it has ended")
		return p.statusCode("/-/ready") == http.StatusOK
	}, cassiatest.Patience, 10*time.Millisecond)
}

// writeMetrics sends one sample for each of n new metrics and reports whether they were acknowledged. The labels are
// incompressible, so that each write fills memory.
func (p *child) writeMetrics(n int) bool {
	noise := make([]byte, 1000)
	var request prompb.WriteRequest
	for i := range n {
		for j := range noise {
			noise[j] = 'a' + byte(p.c.rand.IntN(26))
		}
		request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
			Labels: []prompb.Label{
				{Name: "__name__", Value: fmt.Sprint("kept_", p.c.tried+i)}, {Name: "noise", Value: string(noise)},
			},
			Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
		})
	}
	body, err := request.Marshal()
	require.NoError(p.c.t, err)
	p.c.tried += n
	code, text := p.request(http.MethodPost, "/api/v1/write", snappy.Encode(nil, body))
	if code == http.StatusNoContent {
		p.c.acked += n
		return true
	}
	require.Contains(p.c.t, []int{0, http.StatusServiceUnavailable, http.StatusInternalServerError}, code, text)
	return false
}

// requireAll requires that a query returns all acknowledged samples.
func (p *child) requireAll() {
	p.c.t.Helper()
	p.waitReady()
	code, text := p.request(http.MethodGet, `/api/v1/query?query=count(last_over_time({__name__=~"kept_.*"}[1h]))`, nil)
	require.Equal(p.c.t, http.StatusOK, code, text)
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	require.NoError(p.c.t, json.Unmarshal([]byte(text), &answer))
	require.Len(p.c.t, answer.Data.Result, 1, text)
	var found int
	_, err := fmt.Sscan(fmt.Sprint(answer.Data.Result[0].Value[1]), &found)
	require.NoError(p.c.t, err)
	require.GreaterOrEqual(p.c.t, found, p.c.acked, "acknowledged samples are lost")
	require.LessOrEqual(p.c.t, found, p.c.tried)
}

// stop sends SIGTERM and returns the exit status.
func (p *child) stop() int {
	p.c.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.c.t, err)
	}
	return p.wait()
}

// wait waits until the process exits by itself and returns the exit status.
func (p *child) wait() int {
	p.c.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(cassiatest.StopWithin):
		p.c.t.Fatal("it doesn't end")
	}
	require.NotContains(p.c.t, p.log.String(), "goroutine ", "it panicked")
	return p.cmd.ProcessState.ExitCode()
}

// kill kills the process as `kill -9` does.
func (p *child) kill() {
	require.NoError(p.c.t, p.cmd.Process.Kill())
	<-p.ended
}
