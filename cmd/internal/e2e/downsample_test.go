package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// writeHours sends a sample per minute for some series. The last of the hours ends before the current slot.
func writeHours(ctx context.Context, t *testing.T, url string, end time.Time, hours, series int) (samples int) {
	t.Helper()
	for h := range hours {
		request := &prompb.WriteRequest{}
		for i := range series {
			s := prompb.TimeSeries{
				Labels: []prompb.Label{{Name: "__name__", Value: "m"}, {Name: "i", Value: strconv.Itoa(i)}},
			}
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

// TestDownsampleCommand checks that cassia downsample seals all samples and creates all rollups. It runs the command on
// the directory of a killed server, which contains unsealed samples, and sealed samples without rollups. It interrupts
// the command repeatedly, and runs it until no work is left.
func TestDownsampleCommand(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	binary := builtCassia(t)
	dir := t.TempDir()
	path := "--storage.path=" + filepath.Join(dir, "data")
	// The grace period is so long that the server doesn't seal.
	program := promrig.Cassia(
		binary, dir, cassiatest.FreeAddress(t), "--storage.settle=1d", "--storage.slot=1h", "--no-self-monitoring",
	)
	server := start(ctx, t, program)
	end := time.Now().Add(-2 * time.Hour).Truncate(24 * time.Hour).Add(-3 * 24 * time.Hour)
	samples := writeHours(ctx, t, server.URL(), end, 30, 40)
	require.NoError(t, promrig.PostEmpty(ctx, server.URL()+"/-/seal"))
	samples += writeHours(ctx, t, server.URL(), time.Now().Truncate(time.Hour).Add(-time.Hour), 20, 40)
	server.Kill()
	removeRollups(t, filepath.Join(dir, "data"))

	out, stderr, status := cassiatest.Command(t, binary, "downsample", path, "--dry-run")
	require.Zero(t, status, stderr)
	t.Log(out)
	require.Contains(t, out, "\n80 slots")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	var slots, windows, compact, counted, steps int
	_, err := fmt.Sscanf(last,
		"%d slots to seal, counted once per partition; %d windows to roll up; %d windows to compact; %d windows to count: %d steps",
		&slots, &windows, &compact, &counted, &steps)
	require.NoError(t, err, last)
	require.Equal(t, 20*4, slots)
	require.Equal(t, 2, windows, "30 hours until a midnight")
	require.Zero(t, compact+counted, "there are no rollups")
	require.Equal(t, 20*4+30*4, steps)
	require.Equal(t, 20, strings.Count(out, "staged in 4 partitions"))

	out, stderr, status = cassiatest.Command(
		t, binary, "downsample", path, "--dry-run", "--end="+strconv.FormatInt(end.Unix(), 10),
	)
	require.Zero(t, status, stderr)
	require.Contains(t, out,
		"0 slots to seal, counted once per partition; 2 windows to roll up; 0 windows to compact; 0 windows to count: 120 steps")

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
		if kill == syscall.SIGINT && cmd.ProcessState.ExitCode() == 130 {
			require.Contains(t, errs.String(), "interrupted", "in one line that says what to do")
		}
	}
	t.Logf("interrupted %d times", interrupted)
	require.Positive(t, interrupted)
	out, stderr, status = cassiatest.Command(t, binary, "downsample", path)
	require.Zero(t, status, stderr)
	require.Equal(t, "nothing to do\n", out)
	require.Empty(t, stderr)

	out, stderr, status = cassiatest.Command(t, binary, "check", path)
	require.Zero(t, status, out+stderr)
	require.Contains(t, out, fmt.Sprintf("with %d samples, ", samples))
	out, stderr, status = cassiatest.Command(t, binary, "retention", path, "--retention.raw=2d", "--retention.5m=1y")
	require.Zero(t, status, stderr)
	t.Log(out)
	require.Contains(t, out, "with raw 2d, 5m 1y, 1h 5y:\n")
	require.Regexp(t, `(?m)^raw +"default" +\d `, out)
	require.Regexp(t, `(?m)^1h +"default" +[12] `, out)

	server = start(ctx, t, program)
	answer, err := promrig.API{URL: server.URL()}.Query(ctx, `sum(count_over_time(m[7d]))`, time.Now())
	require.NoError(t, err)
	require.Equal(t, 1, answer.Points())
	require.NoError(t, server.Terminate(cassiatest.StopWithin))
}

// removeRollups removes the rollups of a directory, so that it is as a release without rollups would have left it.
func removeRollups(t *testing.T, directory string) {
	t.Helper()
	eng, err := pebble.Open(directory, pebble.DefaultOptions())
	require.NoError(t, err)
	s := storagetest.Start(t, eng, func(o *storage.Options) { o.Slot, o.Retention = 0, 0 })
	kept, err := s.WindowInfos(t.Context())
	require.NoError(t, err)
	removed := 0
	for _, k := range kept {
		tables := map[string][]*engine.Table{
			"5m": {engine.R5m, engine.R5mPages}, "1h": {engine.R1h, engine.R1hPages},
		}[k.Resolution.String()]
		if tables == nil {
			continue
		}
		removed++
		for _, table := range append(tables, engine.Sealed) {
			require.NoError(t, eng.Drop(t.Context(), table, engine.Key{engine.Int(k.Window)}))
		}
	}
	require.Positive(t, removed)
	require.NoError(t, s.Close())
	require.NoError(t, eng.Close())
}
