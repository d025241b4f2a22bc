package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// command runs the binary and returns what it wrote and its exit status.
func command(t *testing.T, binary string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// writeHours sends a sample a minute of some series over hours, the last of which ends before the slot of now.
func writeHours(ctx context.Context, t *testing.T, url string, end time.Time, hours, series int) (samples int) {
	t.Helper()
	for h := range hours {
		request := &prompb.WriteRequest{}
		for i := range series {
			s := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "m"}, {Name: "i", Value: strconv.Itoa(i)}}}
			for m := range 60 {
				at := end.Add(-time.Duration(h)*time.Hour - time.Duration(m)*time.Minute)
				s.Samples = append(s.Samples, prompb.Sample{Timestamp: at.UnixMilli(), Value: float64(h * m * i)})
			}
			samples += len(s.Samples)
			request.Timeseries = append(request.Timeseries, s)
		}
		require.NoError(t, deliver(ctx, url+"/api/v1/write", request.Timeseries...))
	}
	return samples
}

// TestDownsampleCommand works off what a server left: unsealed samples, and sealed ones without rollups. It is
// interrupted again and again, and run until nothing is left to do.
func TestDownsampleCommand(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	binary := builtCassia(t)
	dir := t.TempDir()
	path := "--storage.path=" + filepath.Join(dir, "data")
	// The server doesn't seal by itself here.
	program := promrig.Cassia(binary, dir, address(t), "--storage.settle=1d", "--storage.slot=1h", "--no-self-monitoring")
	server := start(ctx, t, program)
	end := time.Now().Add(-2 * time.Hour).Truncate(24 * time.Hour).Add(-3 * 24 * time.Hour)
	samples := writeHours(ctx, t, server.URL(), end, 30, 40)
	require.NoError(t, promrig.Post(ctx, server.URL()+"/-/seal"))
	samples += writeHours(ctx, t, server.URL(), time.Now().Truncate(time.Hour).Add(-time.Hour), 20, 40)
	server.Kill()
	removeRollups(t, filepath.Join(dir, "data"))

	out, stderr, status := command(t, binary, "downsample", path, "--dry-run")
	require.Zero(t, status, stderr)
	t.Log(out)
	require.Contains(t, out, "20 slots")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	var slots, windows, steps int
	_, err := fmt.Sscanf(last, "%d slots, counted once a partition, to seal; %d windows to roll up: %d steps", &slots, &windows, &steps)
	require.NoError(t, err, last)
	require.Equal(t, 20*16, slots)
	require.Equal(t, 2, windows, "30 hours until a midnight")
	require.Equal(t, 20*16+30*16, steps)
	require.Equal(t, 20, strings.Count(out, "staged in 16 partitions"))

	out, stderr, status = command(t, binary, "downsample", path, "--dry-run", "--end="+strconv.FormatInt(end.Unix(), 10))
	require.Zero(t, status, stderr)
	require.Contains(t, out, "0 slots, counted once a partition, to seal; 2 windows to roll up: 480 steps")

	interrupted := 0
	for wait := 100 * time.Millisecond; ; wait += 100 * time.Millisecond {
		var errs bytes.Buffer
		cmd := exec.CommandContext(ctx, binary, "downsample", path)
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		kill := syscall.SIGINT
		if interrupted%2 == 1 {
			kill = syscall.SIGKILL
		}
		timer := time.AfterFunc(wait, func() { _ = cmd.Process.Signal(kill) })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		interrupted++
		if kill == syscall.SIGINT && cmd.ProcessState.ExitCode() == 1 {
			require.Contains(t, errs.String(), "interrupted", "in one line that says what to do")
		}
	}
	t.Logf("interrupted %d times", interrupted)
	require.Positive(t, interrupted)
	out, stderr, status = command(t, binary, "downsample", path)
	require.Zero(t, status, stderr)
	require.Equal(t, "there is nothing to do\n", out)
	require.Empty(t, stderr)

	out, stderr, status = command(t, binary, "check", path)
	require.Zero(t, status, out+stderr)
	require.Contains(t, out, fmt.Sprintf("with %d samples, ", samples))
	out, stderr, status = command(t, binary, "retention", path, "--retention.raw=2d", "--retention.5m=1y")
	require.Zero(t, status, stderr)
	t.Log(out)
	require.Contains(t, out, "with raw 2d, 5m 1y, 1h 5y:\n")
	require.Regexp(t, `(?m)^raw +"default" +\d `, out)
	require.Regexp(t, `(?m)^1h +"default" +[12] `, out)

	server = start(ctx, t, program)
	answer, err := promrig.API{URL: server.URL()}.Query(ctx, `sum(count_over_time(m[7d]))`, time.Now())
	require.NoError(t, err)
	require.Equal(t, 1, answer.Points())
	require.NoError(t, server.Terminate(stopWithin))
}

// removeRollups makes of a directory what a release that knew none would have left.
func removeRollups(t *testing.T, directory string) {
	t.Helper()
	eng, err := pebble.Open(directory, pebble.DefaultOptions())
	require.NoError(t, err)
	o := storage.DefaultOptions()
	o.Slot, o.Retention = 0, 0
	s, err := storage.Open(t.Context(), eng, o)
	require.NoError(t, err)
	kept, err := s.Kept(t.Context())
	require.NoError(t, err)
	removed := 0
	for _, k := range kept {
		table := map[string]*engine.Table{"5m": engine.R5m, "1h": engine.R1h}[k.Resolution.String()]
		if table == nil {
			continue
		}
		removed++
		for _, table := range []*engine.Table{table, engine.Sealed} {
			require.NoError(t, eng.Drop(t.Context(), table, engine.Key{engine.Int(k.Window)}))
		}
	}
	require.Positive(t, removed)
	require.NoError(t, s.Close())
	require.NoError(t, eng.Close())
}

// TestDownsamplingStatus asks a server how sealing stands: its first round has been, or comes.
func TestDownsamplingStatus(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir())
	r.write(t, "late", time.Now().Add(-10*time.Hour), 1)
	var s downsample.Status
	require.Eventually(t, func() bool {
		code, text := r.get(t, "/-/downsample")
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		return s.Rounds > 0
	}, time.Minute, 10*time.Millisecond)
	require.Len(t, s.Partitions, 16)
	require.True(t, s.Partitions[15].Mine)
	require.Equal(t, 0.5, s.Share)
	require.False(t, s.Alarm)
	require.Equal(t, (84 * time.Hour).Seconds(), s.LagLimitSeconds)
	_, metrics := r.get(t, "/metrics")
	require.Contains(t, metrics, "\ncassia_downsample_partitions 16\n")
	require.NoError(t, r.stop())
	require.NotContains(t, r.log.String(), "level=ERROR")
}

func TestDownsampleSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--start=yesterday"}, "--start=yesterday: must be an instant such as 2027-01-01T00:00:00Z or 1798761600"},
		{[]string{"--start=2000", "--end=1000"}, "--start=2000 --end=1000: the end must come after the start"},
		{[]string{"--storage.settle=soon"}, "--storage.settle=soon: must be a duration"},
		{[]string{"--retention.raw=1h"}, "--retention.raw=1h: must be at least 1d"},
		{[]string{"--storage.engine=cassandra"}, "--retention.raw is missing: give it"},
		{[]string{"--storage.path=" + t.TempDir() + "/none"}, "there are no data of Cassia's"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(append([]string{"downsample"}, c.args...), &stderr), c.args)
		require.Contains(t, stderr.String(), c.want)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line")
	}
}

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		done downsample.Done
		took time.Duration
		want string
	}{
		{downsample.Done{All: 200, Now: "sealing"}, 0, "[........................]   0%  0 of 200: sealing"},
		{downsample.Done{Steps: 50, All: 200, Now: "sealing"}, 10 * time.Second, "[######..................]  25%  50 of 200, 5/s, 30s left: sealing"},
		{downsample.Done{Steps: 1, All: 20000, Failed: 1, Now: "x"}, time.Second, "[........................]   0%  1 of 20000, 1/s, 5h33m0s left, 1 failed: x"},
		{downsample.Done{Steps: 199, All: 200, Now: "x"}, 19900 * time.Millisecond, "[#######################.]  99%  199 of 200, 10/s, 100ms left: x"},
		{downsample.Done{Steps: 200, All: 200, Now: "x"}, time.Second, "[########################] 100%  200 of 200, 200/s, 0s left: x"},
	} {
		require.Equal(t, c.want, bar(c.done)+" "+progressLine(c.done, c.took))
	}
}

// TestProgressBar shows a bar on a terminal and lines elsewhere, neither too often.
func TestProgressBar(t *testing.T) {
	for terminal, want := range map[bool]struct{ writes, lines int }{true: {40, 0}, false: {2, 2}} {
		var b bytes.Buffer
		writes := 0
		now := time.Unix(0, 0)
		p := &progressBar{w: writerFunc(func(text []byte) { writes++; b.Write(text) }), terminal: terminal, now: func() time.Time { return now }, began: now, shown: now}
		for i := range 400 {
			now = now.Add(50 * time.Millisecond)
			if i%5 == 0 || i%5 == 4 { // Every 50 or 200 ms.
				p.tell(downsample.Done{Steps: i, All: 400})
			}
		}
		require.Equal(t, want.lines, strings.Count(b.String(), "\n"), terminal)
		require.InDelta(t, want.writes, writes, float64(want.writes)*1.1, terminal)
		p.end()
		require.Equal(t, terminal, strings.HasSuffix(b.String(), "\r\x1b[K"))
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	require.False(t, newProgressBar(f, time.Now).terminal)
	require.NoError(t, f.Close())
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
