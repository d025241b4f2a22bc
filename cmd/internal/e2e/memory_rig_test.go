package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// largeRequest requests all samples of a metric. It returns the status and, if the response isn't a result, the start
// of its text.
type largeRequest func(ctx context.Context, r running, dir string, metric int) (code int, text string, err error)

// largeRequests contains the kinds of large requests. A server must stay within its memory limit even if many of them
// run concurrently.
var largeRequests = map[string]largeRequest{
	"selector":    asked(`big_%d`),
	"range":       ranged(`big_%d`),
	"count by id": asked(`count by (id) (big_%d)`),
	"sum by":      asked(`sum by (host) (big_%d)`),
	"regexp":      asked(`{__name__=~"big_(%d|7|8)",id=~".*[02468]"}`),
	"series":      getting("/api/v1/series", "match[]"),
	"values":      getting("/api/v1/label/id/values", "match[]"),
	"labels":      getting("/api/v1/labels", "match[]"),
	"federate":    getting("/federate", "match[]", `,host=~"host-[12]..\\..*"`), // may use a quarter of the memory
	"read":        reading(prompb.ReadRequest_SAMPLES),
	"streamed":    reading(prompb.ReadRequest_STREAMED_XOR_CHUNKS),
	"json": func(ctx context.Context, r running, _ string, metric int) (int, string, error) {
		code, text, err := getAnswer(ctx, r, "/api/query", "tenant", "default", "metricName",
			fmt.Sprintf("big_%d", metric), "start", fmt.Sprint(time.Now().Add(-10*time.Minute).Unix()))
		if code == http.StatusUnprocessableEntity && strings.Contains(text, "the response has more than") {
			code = http.StatusOK // The limit on responses doesn't depend on the memory.
		}
		return code, text, err
	},
	"export": func(ctx context.Context, r running, dir string, metric int) (int, string, error) {
		cmd := exec.CommandContext(ctx, built.path, "export", "--storage.path="+dir, "--url="+r.URL, "--format=jsonl",
			fmt.Sprintf("--match=big_%d", metric))
		var problem bytes.Buffer
		cmd.Stderr = &problem
		if err := cmd.Run(); err != nil {
			return 0, "", fmt.Errorf("%w: %s", err, problem.String())
		}
		return http.StatusOK, "", nil
	},
}

func asked(query string) largeRequest {
	return func(ctx context.Context, r running, _ string, metric int) (int, string, error) {
		return getAnswer(ctx, r, "/api/v1/query", "query", fmt.Sprintf(query, metric))
	}
}

func ranged(query string) largeRequest {
	return func(ctx context.Context, r running, _ string, metric int) (int, string, error) {
		now := time.Now()
		return getAnswer(ctx, r, "/api/v1/query_range", "query", fmt.Sprintf(query, metric), "start",
			fmt.Sprint(now.Add(-4*time.Minute).Unix()), "end", fmt.Sprint(now.Unix()), "step", "60")
	}
}

func getting(path, parameter string, more ...string) largeRequest {
	return func(ctx context.Context, r running, _ string, metric int) (int, string, error) {
		return getAnswer(ctx, r, path, parameter, fmt.Sprintf(`{__name__="big_%d"%s}`, metric, strings.Join(more, "")))
	}
}

func reading(as prompb.ReadRequest_ResponseType) largeRequest {
	return func(ctx context.Context, r running, _ string, metric int) (int, string, error) {
		now := time.Now()
		body, err := (&prompb.ReadRequest{
			AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{as}, Queries: []*prompb.Query{{
				StartTimestampMs: now.Add(-10 * time.Minute).UnixMilli(), EndTimestampMs: now.UnixMilli(),
				Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: fmt.Sprintf("big_%d", metric)}},
			}},
		}).Marshal()
		if err != nil {
			return 0, "", err
		}
		request, err := http.NewRequestWithContext(
			ctx, http.MethodPost, r.URL+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, body)),
		)
		if err != nil {
			return 0, "", err
		}
		return readAnswer(request)
	}
}

func getAnswer(ctx context.Context, r running, path string, parameters ...string) (int, string, error) {
	values := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		values.Add(parameters[i], parameters[i+1])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path+"?"+values.Encode(), nil)
	if err != nil {
		return 0, "", err
	}
	return readAnswer(request)
}

// readAnswer reads a response to its end. It keeps only the start of an error's text.
func readAnswer(request *http.Request) (int, string, error) {
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text := make([]byte, 500)
	n, err := io.ReadFull(answer.Body, text)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF && answer.ContentLength <= int64(len(text)) {
		err = nil
	}
	return answer.StatusCode, string(bytes.TrimSpace(text[:n])), err
}

// startBounded starts a server with limited memory: limited by a control group if the machine allows it, and otherwise
// by its flag.
func startBounded(t *testing.T, dir string, bound int64) running {
	group, ok := memoryGroup(t, int64(float64(bound)/config.DefaultShare)+1<<20)
	if !ok {
		return startServe(t, "--storage.path="+dir, fmt.Sprint("--memory.max-bytes=", bound))
	}
	return startServeAs(t, func(p promrig.Program) promrig.Program {
		p.Args = append([]string{"-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, group, p.Path}, p.Args...)
		p.Path = "/bin/sh"
		return p
	}, "--storage.path="+dir)
}

// memoryGroup creates a control group with a memory limit in bytes, for the duration of the test. It returns false if
// this isn't possible.
func memoryGroup(t *testing.T, limit int64) (group string, ok bool) {
	for _, of := range [][2]string{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		group := filepath.Join(of[0], fmt.Sprintf("cassia-test-%d-%d", os.Getpid(), limit))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		if !setLimit(filepath.Join(group, of[1]), limit) {
			_ = os.Remove(group) // The directory isn't a control group, or has no memory controller.
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.Remove(group), "its processes have ended") })
		return group, true
	}
	t.Log("no control group can be made here: the flag bounds the memory")
	return "", false
}

// setLimit writes a limit to an existing file. The file doesn't exist if the directory isn't a control group.
func setLimit(path string, limit int64) bool {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	_, err = fmt.Fprint(file, limit)
	return errors.Join(err, file.Close()) == nil
}

// fillMemory stores memoryMetrics metrics with n series each, and some small metrics. If the head is full, it seals.
func fillMemory(t *testing.T, r running, n int) {
	for m := range memoryMetrics {
		for from := 0; from < n; from += 5000 {
			var request prompb.WriteRequest
			for i := from; i < min(n, from+5000); i++ {
				request.Timeseries = append(request.Timeseries, memorySeries(fmt.Sprintf("big_%d", m), i))
			}
			sendFull(t, r, &request)
		}
		if m == memoryMetrics/2-1 { // Seal some of the metrics, and keep the others in the head.
			code, text := r.Post(t, "/-/seal", nil)
			require.Equal(t, http.StatusOK, code, text)
		}
	}
	var request prompb.WriteRequest
	for i := range memorySmall {
		for k := range 10 {
			request.Timeseries = append(request.Timeseries, memorySeries(fmt.Sprintf("small_%d", i), k))
		}
	}
	sendFull(t, r, &request)
}

func memorySeries(metric string, i int) prompb.TimeSeries {
	return prompb.TimeSeries{
		Labels: []prompb.Label{
			{Name: "__name__", Value: metric},
			{Name: "host", Value: fmt.Sprintf("host-%d.eu-central-1.example.com:9100", i%500)},
			{Name: "id", Value: fmt.Sprintf("%08x-6a5d-4b0c-9c3e-%012d", i*2654435761, i)},
			{Name: "job", Value: "kubernetes-pods"},
			{Name: "path", Value: fmt.Sprint("/api/v1/items/", i%1000)},
		},
		Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: float64(i)}},
	}
}

// sendFull sends samples repeatedly until they are stored.
func sendFull(t *testing.T, r running, request *prompb.WriteRequest) {
	body, err := request.Marshal()
	require.NoError(t, err)
	packed := snappy.Encode(nil, body)
	for {
		code, text := r.Post(t, "/api/v1/write", packed)
		if code == http.StatusNoContent {
			return
		}
		require.Contains(t, []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, code, text)
		code, text = r.Post(t, "/-/seal", nil)
		require.Equal(t, http.StatusOK, code, text)
	}
}

// ingestBeside sends samples of existing and new series until ctx ends.
func ingestBeside(ctx context.Context, r running) error {
	for round := 0; ctx.Err() == nil; round++ {
		var request prompb.WriteRequest
		for i := range 500 {
			request.Timeseries = append(
				request.Timeseries, memorySeries("beside", i), memorySeries("new", round*10+i%10),
			)
		}
		for i := range memorySmall {
			request.Timeseries = append(request.Timeseries, memorySeries(fmt.Sprintf("small_%d", i), 0))
		}
		body, err := request.Marshal()
		if err != nil {
			return err
		}
		post, err := http.NewRequestWithContext(
			ctx, http.MethodPost, r.URL+"/api/v1/write", bytes.NewReader(snappy.Encode(nil, body)),
		)
		if err != nil {
			return err
		}
		post.Header.Set("Content-Type", "application/x-protobuf")
		post.Header.Set("Content-Encoding", "snappy")
		code, text, err := readAnswer(post)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case code >= 500 && code != http.StatusServiceUnavailable:
			return fmt.Errorf("writing: %d: %s", code, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// watchAnonymous measures the anonymous memory of a process until the test ends. The returned function returns the max
// size measured so far, in bytes.
func watchAnonymous(t *testing.T, pid int) func() int64 {
	var most atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	look := func() {
		f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return // The process has exited.
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var kilobytes int64
			if n, _ := fmt.Sscanf(lines.Text(), "RssAnon: %d kB", &kilobytes); n == 1 &&
				strings.HasPrefix(lines.Text(), "RssAnon") {
				most.Store(max(most.Load(), kilobytes<<10))
			}
		}
	}
	go func() {
		defer close(done)
		for {
			look()
			select {
			case <-stop:
				return
			case <-time.After(memoryInterval):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return func() int64 {
		look()
		require.Positive(t, most.Load(), "the system tells the anonymous memory of processes")
		return most.Load()
	}
}

// cpuOf returns the CPU time that a process has used.
func cpuOf(t *testing.T, pid int) time.Duration {
	usage, err := bench.ProcessUsage(pid)
	require.NoError(t, err)
	return usage.CPU
}
