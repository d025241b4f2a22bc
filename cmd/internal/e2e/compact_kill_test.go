package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/soak"
)

// compactedDays is the number of days with samples. They extend over two windows of 30 days.
const compactedDays = 40

// TestCompactionIsKilled kills cassia downsample at random moments while it compacts rollups. After each kill, a server
// must return the same results as before the compaction. After the last run, no work must be left.
func TestCompactionIsKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 4))
	c := newCompactedDirectory(ctx, t)
	killed := 0
	for killed < soak.Times(t, 8) {
		dir := c.copy("killed")
		path := "--storage.path=" + filepath.Join(dir, "data")
		for done := false; !done; {
			cmd := exec.CommandContext(ctx, c.binary, "downsample", path)
			require.NoError(t, cmd.Start())
			timer := time.AfterFunc(time.Duration(rng.Int64N(int64(c.took))), func() { _ = cmd.Process.Kill() })
			done = cmd.Wait() == nil
			timer.Stop()
			if !done {
				killed++
				c.requireAnswers(dir, fmt.Sprintf("after %d kills", killed))
			}
		}
		out, stderr, status := cassiatest.Command(t, c.binary, "downsample", path)
		require.Zero(t, status, stderr)
		require.Equal(t, "nothing to do\n", out)
		c.requireAnswers(dir, "compacted")
		out, stderr, status = cassiatest.Command(t, c.binary, "check", path)
		require.Zero(t, status, out+stderr)
		require.NoError(t, os.RemoveAll(dir))
	}
	t.Logf("killed %d times, a whole compaction takes %v", killed, c.took)
}

// compactedDirectory is a directory with weeks of sealed samples whose rollups aren't compacted yet.
type compactedDirectory struct {
	t       *testing.T
	ctx     context.Context
	binary  string
	sealed  string
	now     time.Time
	answers []string
	took    time.Duration // duration of a complete compaction, including start and stop
}

func newCompactedDirectory(ctx context.Context, t *testing.T) *compactedDirectory {
	c := &compactedDirectory{t: t, ctx: ctx, binary: builtCassia(t), sealed: t.TempDir(), now: time.Now().Truncate(24 * time.Hour)}
	server := start(ctx, t, c.program(c.sealed))
	for day := range compactedDays {
		c.writeDay(server.URL(), c.now.Add(-time.Duration(compactedDays-day)*24*time.Hour))
	}
	require.NoError(t, promrig.PostEmpty(ctx, server.URL()+"/-/seal"))
	c.answers = c.ask(server.URL())
	require.NoError(t, server.Terminate(cassiatest.StopWithin))

	dir := c.copy("whole")
	began := time.Now()
	out, stderr, status := cassiatest.Command(t, c.binary, "downsample", "--storage.path="+filepath.Join(dir, "data"))
	c.took = time.Since(began)
	require.Zero(t, status, stderr)
	require.Regexp(t, `compacted [4-9] windows of rollups`, out)
	c.requireAnswers(dir, "compacted at once")
	require.NoError(t, os.RemoveAll(dir))
	return c
}

func (c *compactedDirectory) program(dir string) promrig.Program {
	return promrig.Cassia(c.binary, dir, cassiatest.FreeAddress(c.t), "--storage.settle=1d", "--no-self-monitoring", "--retention.raw=365d")
}

// writeDay sends a day of samples at an interval of five minutes: of counters that reset, and of gauges.
func (c *compactedDirectory) writeDay(url string, from time.Time) {
	var all []prompb.TimeSeries
	for i := range 60 {
		s := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "m" + strconv.Itoa(i%3)}, {Name: "i", Value: strconv.Itoa(i)}}}
		rng := rand.New(rand.NewPCG(uint64(i), uint64(from.Unix())))
		v := rng.Float64() * 1000
		for at := from.Add(time.Minute); at.Before(from.Add(24 * time.Hour)); at = at.Add(5 * time.Minute) {
			if v += float64(rng.IntN(50)); rng.IntN(100) == 0 {
				v = 0
			}
			s.Samples = append(s.Samples, prompb.Sample{Timestamp: at.UnixMilli(), Value: v})
		}
		all = append(all, s)
	}
	require.NoError(c.t, deliver(c.ctx, url+"/api/v1/write", all...))
}

// copy returns a copy of the sealed directory.
func (c *compactedDirectory) copy(name string) string {
	dir := filepath.Join(c.t.TempDir(), name)
	require.NoError(c.t, os.CopyFS(filepath.Join(dir, "data"), os.DirFS(filepath.Join(c.sealed, "data"))))
	return dir
}

// ask returns the results of some queries at each resolution of rollups, as text.
func (c *compactedDirectory) ask(url string) (answers []string) {
	for _, resolution := range []string{"5m", "1h"} {
		for _, query := range []string{"sum by (i) (increase(m0[1h]))", "max_over_time(m1[1h])", "avg_over_time(m2[2h])", "count(last_over_time({__name__=~\"m.*\"}[1h]))"} {
			for _, ago := range []time.Duration{compactedDays * 24 * time.Hour, 17*24*time.Hour + 5*time.Hour} {
				params := neturl.Values{"query": {query}, "start": {instant(c.now.Add(-ago))}, "end": {instant(c.now.Add(-3 * 24 * time.Hour))}, "step": {"3600"}, "resolution": {resolution}}
				answer, err := get(c.ctx, url+"/api/v1/query_range?"+params.Encode())
				require.NoError(c.t, err)
				answers = append(answers, answer)
			}
		}
	}
	return answers
}

func instant(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// requireAnswers starts a server on a directory and requires that the server returns the same results as before the
// compaction.
func (c *compactedDirectory) requireAnswers(dir, when string) {
	server := start(c.ctx, c.t, c.program(dir))
	got := c.ask(server.URL())
	server.Kill()
	require.Equal(c.t, c.answers, got, when)
}
