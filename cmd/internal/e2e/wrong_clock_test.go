package e2e

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// twoMonths is the amount by which clocks are off in these tests. With it, all samples of the test are past their
// retention.
const twoMonths = 60 * 24 * time.Hour

// clockRig writes samples from 25, 10 and 0 days ago, an hour of each, to processes whose clocks are correct or wrong.
type clockRig struct {
	t      *testing.T
	ctx    context.Context
	skewed skewed
	began  time.Time
	wrote  int
}

func newClockRig(t *testing.T) *clockRig {
	r := &clockRig{t: t, skewed: skewedCassia(t, 0), began: time.Now().Truncate(time.Minute)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return r
}

// write sends an hour of samples, one per minute. The last sample has the given age.
func (r *clockRig) write(p *promrig.Process, age time.Duration) {
	r.t.Helper()
	series := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "kept_total"}}}
	for n := range 60 {
		at := r.began.Add(-age - time.Duration(n)*time.Minute)
		series.Samples = append(series.Samples, prompb.Sample{Timestamp: at.UnixMilli(), Value: float64(at.Unix())})
	}
	require.NoError(r.t, deliver(r.ctx, p.URL()+"/api/v1/write", series))
	r.wrote += len(series.Samples)
}

// count returns the number of samples that a process returns.
func (r *clockRig) count(p *promrig.Process) (n int) {
	r.t.Helper()
	var answer promrig.Answer
	require.NoError(r.t, patiently(func() (err error) {
		answer, err = promrig.API{URL: p.URL()}.Query(r.ctx, "count_over_time(kept_total[29d])", r.began)
		return err
	}))
	if len(answer.Series) == 1 {
		_, v := parsePoint(r.t, answer.Series[0].Floats[0])
		n = int(v)
	}
	return n
}

// waitDoubted waits until a process treats its clock as untrusted or, if want is false, as trusted.
func (r *clockRig) waitDoubted(p *promrig.Process, want bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return valueOf(r.t, p.URL(), "cassia_store_clock_doubted") == 1 == want },
		cassiatest.Patience, 50*time.Millisecond, "doubted: %t", want)
}

// post sends a request without a body.
func (r *clockRig) post(p *promrig.Process, path string) (code int, text string) {
	r.t.Helper()
	return cassiatest.Server{URL: p.URL()}.Post(r.t, path, nil)
}

func (r *clockRig) delete(p *promrig.Process, metric string) (code int, text string) {
	return r.post(p, "/api/v1/admin/tsdb/delete_series?"+url.Values{"match[]": {metric}}.Encode())
}

// rounds returns the number of passes in which a process has checked for expired data.
func (r *clockRig) rounds(p *promrig.Process) float64 {
	return valueOf(r.t, p.URL(), "cassia_downsample_rounds_total")
}

// removesNothing requires that a process with a wrong clock neither deletes nor hides samples, and that sealing drops
// none. before is the number of passes that the process had completed earlier. removesNothing waits for a further pass
// before it counts the samples.
func (r *clockRig) removesNothing(p *promrig.Process, before float64) {
	r.t.Helper()
	r.waitDoubted(p, true)
	code, text := r.delete(p, "kept_total")
	require.Equal(r.t, http.StatusServiceUnavailable, code, text)
	require.Contains(r.t, text, "clock is untrusted")
	code, text = r.post(p, "/-/seal")
	require.True(r.t, code == http.StatusOK || strings.Contains(text, "clock"), "%d: %s", code, text)
	require.Eventually(r.t, func() bool { return r.rounds(p) > before }, cassiatest.Patience, 100*time.Millisecond,
		"what expires is looked at in rounds")
	require.Equal(r.t, r.wrote, r.count(p))
}

// TestWrongClock runs the real program on a directory while its clock is two months fast, while it is two months slow,
// and while it jumps by two months and back. No sample may be lost, deleted or hidden, and once the clock is correct
// again, everything must be unchanged.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	r := newClockRig(t)
	dir := t.TempDir()
	program := func(d time.Duration, more ...string) promrig.Program {
		flags := append([]string{
			"--retention.raw=30d", "--retention.5m=30d", "--retention.1h=30d", "--storage.slot=1h",
			"--storage.settle=1s",
		}, more...)
		path := r.skewed.path
		if d != 0 {
			path = skewedCassia(t, d).path
		}
		return promrig.Cassia(path, dir, cassiatest.FreeAddress(t), flags...)
	}
	stop := func(p *promrig.Process) { require.NoError(t, p.Terminate(cassiatest.StopWithin)) }

	right := start(r.ctx, t, program(0))
	r.write(right, 25*24*time.Hour)
	r.write(right, 10*24*time.Hour)
	code, text := r.post(right, "/-/seal")
	require.Equal(t, http.StatusOK, code, text)
	r.write(right, 0)
	require.Equal(t, r.wrote, r.count(right))
	stop(right)

	for _, off := range []time.Duration{twoMonths, -twoMonths} {
		wrong := start(r.ctx, t, program(off))
		r.removesNothing(wrong, 0)
		stop(wrong)
	}

	right = start(r.ctx, t, program(0))
	r.waitDoubted(right, false)
	require.Equal(t, r.wrote, r.count(right))
	for off, before := range map[time.Duration]float64{twoMonths: r.rounds(right), -twoMonths: 0} {
		// A pass takes a minute.
		r.skewed.set(t, right.PID(), off)
		r.removesNothing(right, before)
		r.skewed.set(t, right.PID(), 0)
		r.waitDoubted(right, false)
		require.Equal(t, r.wrote, r.count(right))
	}
	code, text = r.delete(right, "another_metric")
	require.Equal(t, http.StatusNoContent, code, text)
	stop(right)
	requireSound(r.ctx, t, r.skewed.path, []string{"--storage.path=" + filepath.Join(dir, "data")})

	// Once an operator confirms the date, the same program hides all samples.
	today := time.Now().Add(twoMonths).UTC().Format(time.DateOnly)
	ahead := start(r.ctx, t, program(twoMonths, "--storage.today="+today))
	require.Eventually(t, func() bool { return r.count(ahead) == 0 }, cassiatest.Patience, 50*time.Millisecond,
		"the clock is ahead by two months")
}

// postAt sends one sample of a metric and returns the response.
func (r *clockRig) postAt(p *promrig.Process, metric string, at time.Time) (code int, text string) {
	r.t.Helper()
	code, text, err := post(r.ctx, p.URL()+"/api/v1/write", prompb.TimeSeries{
		Labels:  []prompb.Label{{Name: "__name__", Value: metric}},
		Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: 1}},
	})
	require.NoError(r.t, err)
	return code, text
}

// metric returns the number of samples of a metric that a process returns.
func (r *clockRig) metric(p *promrig.Process, metric string) (n int) {
	r.t.Helper()
	var answer promrig.Answer
	require.NoError(r.t, patiently(func() (err error) {
		answer, err = promrig.API{URL: p.URL()}.Query(r.ctx, "count_over_time("+metric+"[1h])", time.Now())
		return err
	}))
	if len(answer.Series) == 1 {
		_, v := parsePoint(r.t, answer.Series[0].Floats[0])
		n = int(v)
	}
	return n
}

// TestSlowClockUntilNTP runs the real program on a single machine while its clock is 20 minutes slow, as after a boot,
// and while the clock is set forward and back. Samples with correct times must be accepted, or rejected with a status
// that the sender retries.
func TestSlowClockUntilNTP(t *testing.T) {
	t.Parallel()
	r := newClockRig(t)
	slow := skewedCassia(t, -20*time.Minute)
	p := start(r.ctx, t, promrig.Cassia(slow.path, t.TempDir(), cassiatest.FreeAddress(t)))
	code, text := r.postAt(p, "right", time.Now())
	require.Equal(t, http.StatusServiceUnavailable, code, text)
	require.Contains(t, text, "maybe_ahead")
	slow.set(t, p.PID(), 0)
	code, text = r.postAt(p, "right", time.Now())
	require.Equal(t, http.StatusNoContent, code, text)
	require.Equal(t, 1, r.metric(p, "right"))
	code, text = r.postAt(p, "wrong", time.Now().AddDate(200, 0, 0))
	require.Equal(t, http.StatusBadRequest, code, text)

	p = start(r.ctx, t, promrig.Cassia(r.skewed.path, t.TempDir(), cassiatest.FreeAddress(t)))
	for n, off := range []time.Duration{0, -20 * time.Minute, 0} { // The observed uptime detects that it was set back.
		r.skewed.set(t, p.PID(), off)
		code, text = r.postAt(p, "right", time.Now())
		require.Equal(t, http.StatusNoContent, code, text)
		require.Equal(t, n+1, r.metric(p, "right"))
	}
}

// TestSlowClockInACluster runs two processes on one keyspace, one of them with a clock that is 3 hours slow. That
// process must accept and return the same samples as the other one.
func TestSlowClockInACluster(t *testing.T) {
	t.Parallel()
	engine := cassiatest.OnCassandra(t)
	r := newClockRig(t)
	program := func(path string) promrig.Program {
		return promrig.Cassia(path, t.TempDir(), cassiatest.FreeAddress(t),
			append([]string{"--storage.slot=1h", "--storage.partitions=2"}, engine...)...)
	}
	right := start(r.ctx, t, program(r.skewed.path))
	wrong := start(r.ctx, t, program(skewedCassia(t, -3*time.Hour).path))
	for i, p := range []*promrig.Process{right, wrong} {
		code, text := r.postAt(p, "right", time.Now())
		require.Equal(t, http.StatusNoContent, code, text)
		require.Eventually(t, func() bool { return r.metric(right, "right") == i+1 && r.metric(wrong, "right") == i+1 },
			cassiatest.Patience, 50*time.Millisecond)
		code, text = r.postAt(p, "ahead", time.Now().Add(time.Hour))
		require.Equal(t, http.StatusBadRequest, code, "by both clocks: %s", text)
	}
	require.InDelta(t, -(3 * time.Hour).Seconds(), valueOf(t, wrong.URL(), "cassia_store_clock_ahead_seconds"), 60)
	log, err := os.ReadFile(wrong.Log)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "clock is slow"), "one line, not one per heartbeat: %s", log)

	// The clock becomes slow while the process runs. Until the next heartbeat, samples are rejected with a status that
	// the sender retries.
	r.skewed.set(t, right.PID(), -3*time.Hour)
	sent := prompb.TimeSeries{
		Labels:  []prompb.Label{{Name: "__name__", Value: "right"}},
		Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
	}
	require.NoError(t, deliver(r.ctx, right.URL()+"/api/v1/write", sent))
	require.Equal(t, 3, r.metric(right, "right"))
}

// TestWrongClockInACluster runs two processes on one keyspace, one of them with a clock that is two months fast. That
// process must accept no samples and delete nothing, including late samples that the other process accepts.
func TestWrongClockInACluster(t *testing.T) {
	t.Parallel()
	engine := cassiatest.OnCassandra(t)
	r := newClockRig(t)
	program := func(path string) promrig.Program {
		flags := append([]string{
			"--retention.raw=30d", "--retention.5m=30d", "--retention.1h=30d", "--storage.slot=1h",
			"--storage.settle=1s", "--storage.partitions=2",
		}, engine...)
		return promrig.Cassia(path, t.TempDir(), cassiatest.FreeAddress(t), flags...)
	}
	right := start(r.ctx, t, program(r.skewed.path))
	r.write(right, 25*24*time.Hour)
	wrong := start(r.ctx, t, program(skewedCassia(t, twoMonths).path))
	r.waitDoubted(wrong, true)
	r.write(right, 10*24*time.Hour)
	code, text, err := post(r.ctx, wrong.URL()+"/api/v1/write", prompb.TimeSeries{
		Labels:  []prompb.Label{{Name: "__name__", Value: "refused"}},
		Samples: []prompb.Sample{{Timestamp: time.Now().Add(twoMonths).UnixMilli(), Value: 1}},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, code, text)
	require.Contains(t, text, "clock")
	r.removesNothing(wrong, 0)

	// The correct clock jumps forward and back.
	before := r.rounds(right)
	r.skewed.set(t, right.PID(), twoMonths)
	r.removesNothing(right, before)
	r.skewed.set(t, right.PID(), 0)
	r.waitDoubted(right, false)
	require.NoError(t, wrong.Terminate(cassiatest.StopWithin))
	r.write(right, 20*24*time.Hour) // If sealing used a boundary two months ahead, it would drop these late samples.
	require.Eventually(t, func() bool { code, _ := r.post(right, "/-/seal"); return code == http.StatusOK },
		cassiatest.Patience, 100*time.Millisecond)
	require.Equal(t, r.wrote, r.count(right))
	require.NoError(t, right.Terminate(cassiatest.StopWithin))
	requireSound(r.ctx, t, r.skewed.path, engine)
}

// TestTwoPausesOfDays runs the real program on a directory on three days. The second start is six days after the first:
// the program accepts samples while its clock is untrusted, and is killed within a minute. The third start is four days
// later, on this directory and on a restored backup of it. All acknowledged samples must be queryable, exportable and
// sealed.
func TestTwoPausesOfDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	r := newClockRig(t)
	dir, folder, restored := t.TempDir(), filepath.Join(t.TempDir(), "backups"), t.TempDir()
	program := func(path, home string) promrig.Program {
		return promrig.Cassia(
			path, home, cassiatest.FreeAddress(t), "--retention.raw=30d", "--storage.slot=1h", "--no-self-monitoring",
		)
	}
	cassia := func(args ...string) string {
		var out, told bytes.Buffer
		cmd := exec.CommandContext(r.ctx, r.skewed.path, args...)
		cmd.Stdout, cmd.Stderr = &out, &told
		require.NoError(t, cmd.Run(), "%s %s", &out, &told)
		return out.String()
	}

	first := start(r.ctx, t, program(skewedCassia(t, -10*day).path, dir))
	r.write(first, 10*day)
	first.Kill()
	second := start(r.ctx, t, program(skewedCassia(t, -4*day).path, dir))
	r.waitDoubted(second, true)
	r.write(second, 4*day)
	require.Equal(t, r.wrote, r.count(second))
	cassia("backup", "--storage.path="+filepath.Join(dir, "data"), "--to="+folder, "--url="+second.URL())
	second.Kill()

	require.Contains(
		t, cassia("restore", "--from="+folder, "--storage.path="+filepath.Join(restored, "data")), ": 0 problems",
	)
	for _, home := range []string{dir, restored} {
		at := "--storage.path=" + filepath.Join(home, "data")
		require.Equal(t, r.wrote,
			strings.Count("\n"+cassia("export", at, "--format=openmetrics", "--match=kept_total"), "\nkept_total "),
			"exported")
		third := start(r.ctx, t, program(r.skewed.path, home))
		r.waitDoubted(third, true)
		require.Equal(t, r.wrote, r.count(third))
		code, text := r.post(third, "/-/seal")
		require.Equal(t, http.StatusOK, code, text)
		require.Equal(t, r.wrote, r.count(third), "sealed")
		require.NoError(t, third.Terminate(cassiatest.StopWithin))
		requireSound(r.ctx, t, r.skewed.path, []string{at})
	}
}
