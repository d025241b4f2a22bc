package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/config"
)

// running is a server in the process of the test.
type running struct {
	cassiatest.Server
	// log must only be read after stop has returned.
	log  *bytes.Buffer
	stop func() error
}

// runServer runs a server until ctx ends, which isn't an error. It calls listening with the addresses once all requests
// are served.
func runServer(
	ctx context.Context, c *config.Config, flags map[string]string, log *slog.Logger, listening func([]string),
) error {
	return newProcess(c, flags, log).run(ctx, listening)
}

// startServe runs a server with these flags until stop is called or the test ends. Self-monitoring is disabled unless a
// flag enables it.
func startServe(t *testing.T, args ...string) running {
	t.Helper()
	app := kingpin.New("cassia", "")
	c := config.RegisterFlags(app.Command("serve", ""), 1<<30)
	flags := append([]string{"serve", "--web.listen-address=127.0.0.1:0", "--web.enable-admin-api"}, args...)
	if !slices.Contains(args, "--self-monitoring") {
		flags = append(flags, "--no-self-monitoring")
	}
	_, err := app.Parse(flags)
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	// Queries are canceled when the process is close to its memory limit. The limit is high because all tests run their
	// servers in the same process.
	c.Memory = 64 << 30

	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- runServer(ctx, c, map[string]string{"storage.path": c.Path}, slog.New(slog.NewTextHandler(&log, nil)),
			func(a []string) { listening <- a[0] })
	}()
	stopped := false
	stop := func() error {
		cancel()
		if stopped {
			return nil
		}
		stopped = true
		return <-ended
	}
	t.Cleanup(func() { require.NoError(t, stop()) })
	select {
	case address := <-listening:
		return running{cassiatest.Server{URL: "http://" + address}, &log, stop}
	case err := <-ended:
		stopped = true
		t.Fatalf("serve ended: %v", err)
		return running{}
	}
}

// startProcess runs a server with these flags in the process of the test, until the test ends.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	app := kingpin.New("cassia", "")
	c := config.RegisterFlags(app.Command("serve", ""), 1<<30)
	_, err := app.Parse(append([]string{"serve", "--web.listen-address=127.0.0.1:0"}, args...))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	p := newProcess(c, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- p.run(ctx, func([]string) { close(listening) }) }()
	select {
	case <-listening:
	case err := <-ended:
		require.NoError(t, err)
	}
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return p
}

func TestServeKeepsWhatItTook(t *testing.T) {
	path := "--storage.path=" + t.TempDir()
	at := time.Now().Truncate(time.Second)
	r := startServe(t, path)
	r.Write(t, "a", at, 1)
	require.Equal(t, "1", r.Value(t, "a", at), "unsealed")
	code, text := r.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	require.Equal(t, "1", r.Value(t, "a", at), "sealed")
	r.Write(t, "b", at, 2)
	require.NoError(t, r.stop())

	r = startServe(t, path)
	r.Write(t, "c", at, 3)
	for metric, want := range map[string]string{"a": "1", "b": "2", "c": "3", "d": ""} {
		require.Equal(t, want, r.Value(t, metric, at), metric)
	}
	_, metrics := r.Get(t, "/metrics")
	for _, name := range []string{
		"cassia_build_info", "cassia_http_requests_total", "go_goroutines", "cassia_pebble_disk_bytes",
		"cassia_downsample_lag_seconds", "prometheus_engine_queries",
	} {
		require.Contains(t, metrics, name)
	}
	_, flags := r.Get(t, "/api/v1/status/flags")
	require.Contains(t, flags, "storage.path")
	require.NoError(t, r.stop())
	require.NotContains(t, r.log.String(), "other machines", "it listens on loopback only")
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	directory := t.TempDir()
	path := "--storage.path=" + directory
	r := startServe(t, path)
	port := strings.TrimPrefix(r.URL, "http://")
	file := t.TempDir() + "/file"
	require.NoError(t, syscall.Mkfifo(file, 0o600))

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", path, "--web.listen-address=127.0.0.1:0"}, path + ": in use by another process; stop that process, or choose another directory"},
		{[]string{"serve", "--storage.path=" + t.TempDir(), "--web.listen-address=" + port}, "--web.listen-address=" + port + ": the address is in use by another program; stop it, or choose another port"},
		{[]string{"serve", "--storage.path=" + file, "--web.listen-address=127.0.0.1:0"}, "--storage.path=" + file + ": "},
		{[]string{"serve", "--retention.raw=1h"}, "--retention.raw=1h: must be at least 1d, or 0 to keep samples forever"},
		{[]string{"serve", "--nonsense"}, "unknown flag --nonsense; see cassia serve --help"},
		{[]string{"serve", "--storage.pth=x"}, "unknown flag --storage.pth; did you mean --storage.path? See cassia serve --help"},
		{[]string{"srve"}, `unknown command "srve"; did you mean serve? See cassia --help`},
		{[]string{"nonsense"}, `unknown command "nonsense"; see cassia --help`},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(c.args, &stderr), c.args)
		last := cassiatest.LastLine(stderr.String())
		require.True(t, strings.HasPrefix(last, "cassia: "), last)
		require.Contains(t, last, c.want)
	}

	require.NoError(t, r.stop())
	var stderr bytes.Buffer
	require.Equal(t, 1, run([]string{"serve", path, "--storage.slot=4h", "--web.listen-address=127.0.0.1:0"}, &stderr))
	require.Contains(t, cassiatest.LastLine(stderr.String()), "slots of 2h")
	require.Contains(t, cassiatest.LastLine(stderr.String()),
		"check --storage.slot and --storage.partitions, or choose another store")
}

func TestSignalStopsInOrder(t *testing.T) {
	address := cassiatest.FreeAddress(t)
	status := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		status <- run(
			[]string{"serve", "--storage.path=" + t.TempDir(), "--web.listen-address=" + address, "--log.level=error"},
			&stderr,
		)
	}()
	require.Eventually(t, func() bool {
		// Wait until the store is open, because a process that is stopped earlier doesn't execute the code that is
		// tested.
		answer, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, cassiatest.Patience, 5*time.Millisecond)
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	require.Zero(t, <-status)
	require.Empty(t, stderr.String())
}

// TestServeIsStoppedWhileItOpens stops a process at various times while it creates a new store. Each time, the process
// must stop without an error.
func TestServeIsStoppedWhileItOpens(t *testing.T) {
	for after := range 40 {
		dir, err := os.MkdirTemp("", "cassia-stopped-")
		require.NoError(t, err)
		app := kingpin.New("cassia", "")
		c := config.RegisterFlags(app.Command("serve", ""), 1<<30)
		_, err = app.Parse([]string{
			"serve", "--web.listen-address=127.0.0.1:0", "--no-self-monitoring", "--storage.path=" + dir,
		})
		require.NoError(t, err)
		require.NoError(t, c.Validate())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(after)*time.Millisecond, cancel)
		require.NoError(t, runServer(ctx, c, nil, slog.New(slog.DiscardHandler), func([]string) { cancel() }),
			"after %d ms", after)
		cancel()
		// The store may still be opened in the background, which creates files.
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, cassiatest.Patience, 10*time.Millisecond)
	}
}
