package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/config"
)

// running is a server of this test's process.
type running struct {
	url string
	// log is to be read after stop only.
	log  *bytes.Buffer
	stop func() error
}

// startServe runs serve with these flags until stop is called, or the test ends. It stores nothing of its own, unless a
// flag asks for that.
func startServe(t *testing.T, args ...string) running {
	t.Helper()
	app := kingpin.New("cassia", "")
	c := config.Register(app.Command("serve", ""), 1<<30)
	flags := append([]string{"serve", "--web.listen-address=127.0.0.1:0", "--web.enable-admin-api"}, args...)
	if !slices.Contains(args, "--self-monitoring") {
		flags = append(flags, "--no-self-monitoring")
	}
	_, err := app.Parse(flags)
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	// Queries are ended when the process takes most of its memory: here it is that of all servers that tests run side by side.
	c.Memory = 64 << 30

	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- serve(ctx, c, map[string]string{"storage.path": c.Path}, slog.New(slog.NewTextHandler(&log, nil)), func(a []string) { listening <- a[0] })
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
		return running{"http://" + address, &log, stop}
	case err := <-ended:
		stopped = true
		t.Fatalf("serve ended: %v", err)
		return running{}
	}
}

func (r running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	answer, err := http.Get(r.url + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func (r running) post(t *testing.T, path string, body []byte) (int, string) {
	t.Helper()
	return r.postAs(t, "", path, body)
}

// postAs posts as a tenant, "" being none that is named.
func (r running) postAs(t *testing.T, tenant, path string, body []byte) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, r.url+path, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	if tenant != "" {
		request.Header.Set("X-Scope-OrgID", tenant)
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// write sends one sample of a metric.
func (r running) write(t *testing.T, metric string, at time.Time, v float64) {
	t.Helper()
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels: []prompb.Label{{Name: "__name__", Value: metric}}, Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: v}},
	}}}).Marshal()
	require.NoError(t, err)
	code, text := r.post(t, "/api/v1/write", snappy.Encode(nil, body))
	require.Equal(t, http.StatusNoContent, code, text)
}

// value queries a metric's newest value.
func (r running) value(t *testing.T, metric string, at time.Time) string {
	t.Helper()
	require.Eventually(t, func() bool { code, _ := r.get(t, "/-/ready"); return code == http.StatusOK }, patience, 5*time.Millisecond)
	code, body := r.get(t, fmt.Sprintf("/api/v1/query?query=%s&time=%d", metric, at.Unix()))
	require.Equal(t, http.StatusOK, code, body)
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	if len(answer.Data.Result) == 0 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}

func TestServeKeepsWhatItTook(t *testing.T) {
	path := "--storage.path=" + t.TempDir()
	at := time.Now().Truncate(time.Second)
	r := startServe(t, path)
	r.write(t, "a", at, 1)
	require.Equal(t, "1", r.value(t, "a", at), "unsealed")
	code, text := r.post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	require.Equal(t, "1", r.value(t, "a", at), "sealed")
	r.write(t, "b", at, 2)
	require.NoError(t, r.stop())

	r = startServe(t, path)
	r.write(t, "c", at, 3)
	for metric, want := range map[string]string{"a": "1", "b": "2", "c": "3", "d": ""} {
		require.Equal(t, want, r.value(t, metric, at), metric)
	}
	_, metrics := r.get(t, "/metrics")
	for _, name := range []string{"cassia_build_info", "cassia_http_requests_total", "go_goroutines", "cassia_pebble_disk_bytes",
		"cassia_downsample_lag_seconds", "prometheus_engine_queries"} {
		require.Contains(t, metrics, name)
	}
	_, flags := r.get(t, "/api/v1/status/flags")
	require.Contains(t, flags, "storage.path")
	require.NoError(t, r.stop())
	require.NotContains(t, r.log.String(), "other machines", "it listens on loopback only")
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	directory := t.TempDir()
	path := "--storage.path=" + directory
	r := startServe(t, path)
	port := strings.TrimPrefix(r.url, "http://")
	file := t.TempDir() + "/file"
	require.NoError(t, syscall.Mkfifo(file, 0o600))

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", path, "--web.listen-address=127.0.0.1:0"}, path + ": another process has it open; stop that one, or choose another directory"},
		{[]string{"serve", "--storage.path=" + t.TempDir(), "--web.listen-address=" + port}, "--web.listen-address=" + port + ": another program listens there; stop it, or choose another port"},
		{[]string{"serve", "--storage.path=" + file, "--web.listen-address=127.0.0.1:0"}, "--storage.path=" + file + ": "},
		{[]string{"serve", "--retention.raw=1h"}, "--retention.raw=1h: must be at least 1d, or 0 to keep samples for ever"},
		{[]string{"serve", "--nonsense"}, "unknown flag --nonsense; see cassia serve --help"},
		{[]string{"serve", "--storage.pth=x"}, "unknown flag --storage.pth; did you mean --storage.path? See cassia serve --help"},
		{[]string{"srve"}, `unknown command "srve"; did you mean serve? See cassia --help`},
		{[]string{"nonsense"}, `unknown command "nonsense"; see cassia --help`},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(c.args, &stderr), c.args)
		last := lastLineOf(stderr.String())
		require.True(t, strings.HasPrefix(last, "cassia: "), last)
		require.Contains(t, last, c.want)
	}

	require.NoError(t, r.stop())
	var stderr bytes.Buffer
	require.Equal(t, 1, run([]string{"serve", path, "--storage.slot=4h", "--web.listen-address=127.0.0.1:0"}, &stderr))
	require.Contains(t, lastLineOf(stderr.String()), "slots of 2h")
	require.Contains(t, lastLineOf(stderr.String()), "see --storage.slot and --storage.partitions, or choose another store")
}

func lastLineOf(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func TestSignalStopsInOrder(t *testing.T) {
	address := address(t)
	status := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		status <- run([]string{"serve", "--storage.path=" + t.TempDir(), "--web.listen-address=" + address, "--log.level=error"}, &stderr)
	}()
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + address + "/-/healthy")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, patience, 5*time.Millisecond)
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	require.Zero(t, <-status)
	require.Empty(t, stderr.String())
}
