package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/soak"
)

// writeBlocks writes days of series at a minute's interval with Prometheus' own writer, and returns when they begin, a
// midnight, and how many samples they are.
func writeBlocks(t *testing.T, dir string, days, series int) (first time.Time, samples int) {
	t.Helper()
	first = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	const perBlock = 10
	for from := 0; from < days; from += perBlock {
		w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 3*perBlock*24*time.Hour.Milliseconds())
		require.NoError(t, err)
		for i := range series {
			app := w.Appender(t.Context())
			ls := labels.FromStrings(labels.MetricName, fmt.Sprint("metric_", i%5), "host", fmt.Sprint("h", i))
			for m := range perBlock * 1440 {
				at := first.AddDate(0, 0, from).Add(time.Duration(m)*time.Minute + time.Duration(i)*time.Second)
				_, err := app.Append(0, ls, at.UnixMilli(), float64(m*i%977))
				require.NoError(t, err)
				samples++
			}
			require.NoError(t, app.Commit())
		}
		_, err = w.Flush(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return first, samples
}

// TestImportKilled kills the import of a month three times on its way, and runs it again each time: in the end every
// sample is there once, and answers as the source does.
func TestImportKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary on 600,000 samples: leave -short out")
	}
	t.Parallel()
	binary := builtCassia(t)
	dir := t.TempDir()
	blocks, data := filepath.Join(dir, "blocks"), filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(blocks, 0o755))
	first, samples := writeBlocks(t, blocks, 30, 14)
	args := []string{"import", "blocks", "--storage.path=" + data, "--retention.raw=0", "--checkpoint=" + filepath.Join(dir, "checkpoint"), blocks}

	out, errs, status := command(t, binary, append(args, "--dry-run")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, fmt.Sprintf("3 blocks, %s", first.Format(time.DateOnly)))
	require.Contains(t, out, fmt.Sprintf("14 series, %d samples", samples))
	require.NoDirExists(t, data)

	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(100+r.IntN(700))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // It was killed, or it was faster.
		timer.Stop()
	}
	out, errs, status = command(t, binary, append(args, "--verify")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, fmt.Sprintf("verified %d samples", samples))
	require.Contains(t, out, ": 0 differences")
	out, errs, status = command(t, binary, "check", "--storage.path="+data)
	require.Zero(t, status, out+errs)
	require.Contains(t, out, fmt.Sprintf("with %d samples", samples))

	// A server answers from it; meanwhile no import may run.
	server := start(t.Context(), t, promrig.Cassia(binary, dir, address(t), "--retention.raw=0", "--no-self-monitoring"))
	_, errs, status = command(t, binary, args...)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "another process has it open")
	answer, err := promrig.API{URL: server.URL()}.Query(t.Context(), `sum(count_over_time({__name__=~"metric_.*"}[40d]))`, time.Now())
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(answer), fmt.Sprint(samples))
	require.NoError(t, server.Terminate(stopWithin))
}

// TestImportNeedsItsRetention refuses to guess how long rows are kept.
func TestImportNeedsItsRetention(t *testing.T) {
	dir := t.TempDir()
	blocks := filepath.Join(dir, "blocks")
	require.NoError(t, os.Mkdir(blocks, 0o755))
	writeBlocks(t, blocks, 40, 1)
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "--retention.raw=30d"},
		{[]string{"--storage.engine=cassandra"}, "--retention.raw is missing"},
		{[]string{"--match=up{", "--dry-run"}, "--match=up{"},
		{[]string{"--label=x", "--dry-run"}, "--label=x"},
		{[]string{"--start=2027-01-02T00:00:00Z", "--end=2027-01-01T00:00:00Z"}, "the end must come after the start"},
	} {
		var stderr strings.Builder
		require.Equal(t, 1, run(append([]string{"import", "blocks", "--storage.path=" + filepath.Join(dir, "data"), blocks}, c.args...), &stderr))
		require.Contains(t, stderr.String(), c.says)
		require.NoDirExists(t, filepath.Join(dir, "data"))
	}
}
