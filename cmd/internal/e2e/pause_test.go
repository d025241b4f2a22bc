package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// pausedPartitions is the number of partitions among which sealing is divided.
const pausedPartitions = 2

// pausedRig consists of two processes on one keyspace that are suspended at any point and later resumed.
type pausedRig struct {
	*killed
	binary string
	engine []string
	began  time.Time
	lone   []string // metrics with one sample each
}

// TestPausedAndBackLate suspends one of two processes under load: between a write and its response, and while it seals
// on request or in the background. The other process takes over. The suspended process later continues its operation,
// or is killed while it is sealing. No sample may be lost or stored twice, and after all samples are sealed, the state
// must be the same as without a pause.
func TestPausedAndBackLate(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the binary for two minutes: leave -short out")
	}
	underLoadAlone(t)
	r := newPausedRig(t)
	r.processes = startAll(r.ctx, t, r.programs...)
	waitOwned(r.ctx, t, pausedPartitions/2, r.processes...)
	stopLoads := r.startLoads()
	time.Sleep(2 * time.Second)

	r.pausedBeforeTheAnswer()
	r.pausedWhileAskedToSeal(0)
	r.killedWhileSealing(1)
	r.pausedWhileSealingByItself(0)
	stopLoads()
	r.seal(1)
	for i := range r.processes {
		r.verify(i, "all sealed")
		r.verifyLone(i)
	}
	for i := range r.processes {
		r.stop(i)
	}
	requireSound(r.ctx, t, r.binary, r.engine)
}

func newPausedRig(t *testing.T) *pausedRig {
	r := &pausedRig{engine: cassiatest.OnCassandra(t), began: time.Now().Add(-time.Minute).Truncate(time.Second)}
	r.binary = builtCassia(t)
	flags := append([]string{
		"--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d",
		"--storage.partitions=" + strconv.Itoa(pausedPartitions),
	}, r.engine...)
	r.killed = newKilled(t, sharedLoads(t),
		promrig.Cassia(r.binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
		promrig.Cassia(r.binary, t.TempDir(), cassiatest.FreeAddress(t), flags...))
	balanced := newPatient(2*time.Minute, r.programs[0].Address, r.programs[1].Address)
	balanced.inner.ResponseHeaderTimeout = 3 * time.Second // After this time, a sender tries the other process.
	for _, l := range r.loads {
		l.client = &http.Client{Transport: balanced}
	}
	return r
}

func (r *pausedRig) signal(i int, s syscall.Signal) {
	require.NoError(r.t, syscall.Kill(r.processes[i].PID(), s))
}

// pausedBeforeTheAnswer sends samples to a process and suspends it shortly afterwards. It repeats this until some
// samples were durable but not acknowledged when the process was suspended. Each sample that wasn't acknowledged is
// also sent to the other process, and must be stored once.
func (r *pausedRig) pausedBeforeTheAnswer() {
	const wanted, tries = 6, 80
	stored, lost, answered := 0, 0, 0
	within := 60 * time.Millisecond // The max delay before a process is suspended: about the time of a response.
	for n := 0; n < tries && stored < wanted; n++ {
		victim := n % 2
		metric := fmt.Sprintf("lone_%d", n)
		r.lone = append(r.lone, metric)
		body := r.sample(metric)
		late := make(chan string, 1)
		go func() { late <- r.post(victim, body) }()
		time.Sleep(time.Duration(r.rand.Int64N(int64(within))))
		r.signal(victim, syscall.SIGSTOP)
		select {
		case answer := <-late:
			r.signal(victim, syscall.SIGCONT)
			require.Contains(r.t, answer, "204")
			answered++
			within = max(within*4/5, 10*time.Millisecond)
			continue
		case <-time.After(100 * time.Millisecond):
		}
		if r.count(1-victim, metric) == 1 {
			stored++
		} else {
			lost++
			within = min(within*5/4, 10*time.Second)
		}
		require.NoError(r.t, patiently(func() error {
			if answer := r.post(1-victim, body); !strings.HasPrefix(answer, "204") {
				return errors.New("the other process doesn't take it: " + answer)
			}
			return nil
		}))
		require.Equal(r.t, 1, r.count(1-victim, metric))
		r.signal(victim, syscall.SIGCONT)
		r.t.Logf("%s was answered late: %s", metric, <-late)
		require.Equal(r.t, 1, r.count(victim, metric))
	}
	r.t.Logf("stopped %d times before the answer of what was stored already, %d times before it was, %d times too late",
		stored, lost, answered)
	require.Positive(r.t, stored)
	for i := range r.processes {
		r.verify(i, "stopped before an answer")
		r.verifyLone(i)
	}
}

func (r *pausedRig) sample(metric string) []byte {
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: metric}},
		Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
	}}}).Marshal()
	require.NoError(r.t, err)
	return snappy.Encode(nil, body)
}

// post sends a request to one process, without a time limit, and returns the result.
func (r *pausedRig) post(i int, body []byte) string {
	request, err := http.NewRequestWithContext(
		r.ctx, http.MethodPost, r.processes[i].URL()+"/api/v1/write", strings.NewReader(string(body)),
	)
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "snappy")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return answer.Status + ": " + strings.TrimSpace(string(text))
}

// count returns the number of samples of a metric, read through one process.
func (r *pausedRig) count(i int, metric string) int {
	var answer promrig.Answer
	require.NoError(r.t, patiently(func() (err error) {
		answer, err = promrig.API{URL: r.processes[i].URL()}.Query(
			r.ctx, metric+"["+time.Since(r.began).Round(time.Second).String()+"]", time.Now(),
		)
		return err
	}))
	return answer.Points()
}

func (r *pausedRig) verifyLone(i int) {
	for _, metric := range r.lone {
		require.Equal(r.t, 1, r.count(i, metric), "process %d, %s", i, metric)
	}
}

// sealing requests a process to seal all samples and returns once it is sealing. done receives the result.
func (r *pausedRig) sealing(i int) (done chan error) {
	for {
		done = make(chan error, 1)
		url := r.processes[i].URL() + "/-/seal"
		go func() { done <- promrig.PostEmpty(r.ctx, url) }()
		select {
		case err := <-done: // Sealing finished immediately because there was little to seal.
			if !busy(err) {
				require.NoError(r.t, err)
			}
			time.Sleep(500 * time.Millisecond)
		case <-time.After(time.Duration(50+r.rand.Int64N(400)) * time.Millisecond):
			return done
		}
	}
}

// pausedWhileAskedToSeal suspends a process that is sealing all samples. The other process takes over its partitions
// and seals them.
func (r *pausedRig) pausedWhileAskedToSeal(victim int) {
	other := 1 - victim
	done := r.sealing(victim)
	r.signal(victim, syscall.SIGSTOP)
	for ended(done) {
		r.signal(victim, syscall.SIGCONT)
		done = r.sealing(victim)
		r.signal(victim, syscall.SIGSTOP)
	}
	r.takesOver(other)
	r.seal(other)
	r.verify(other, "sealed in place of the one that was stopped")
	r.signal(victim, syscall.SIGCONT)
	r.t.Logf("the seal that was stopped ended with %v", <-done)
	r.backAgain(victim, "back late")
}

// ended reports whether sealing ended just before the process was suspended.
func ended(done chan error) bool {
	select {
	case <-done:
		return true
	case <-time.After(100 * time.Millisecond):
		return false
	}
}

// takesOver waits until a process owns all partitions.
func (r *pausedRig) takesOver(i int) { waitOwned(r.ctx, r.t, pausedPartitions, r.processes[i]) }

// backAgain compares the samples returned by both processes, first by the resumed process victim, and waits until each
// process owns half of the partitions.
func (r *pausedRig) backAgain(victim int, when string) {
	r.verify(victim, when)
	r.verify(1-victim, when)
	waitOwned(r.ctx, r.t, pausedPartitions/2, r.processes...)
}

// killedWhileSealing kills a process that is sealing all samples. The other process takes over and seals the rest.
func (r *pausedRig) killedWhileSealing(victim int) {
	other := 1 - victim
	done := r.sealing(victim)
	r.processes[victim].Kill()
	for <-done == nil { // Retry, because all samples had already been sealed.
		r.revive(victim)
		done = r.sealing(victim)
		r.processes[victim].Kill()
	}
	r.verify(other, "killed in the middle of sealing")
	r.takesOver(other)
	r.seal(other)
	r.verify(other, "sealed in place of the one that was killed")
	r.revive(victim)
	r.backAgain(victim, "killed in the middle of sealing and started again")
}

// pausedWhileSealingByItself suspends a process that has just taken over partitions and is sealing them.
func (r *pausedRig) pausedWhileSealingByItself(victim int) {
	other := 1 - victim
	r.processes[victim].Kill()
	r.takesOver(other)
	time.Sleep(2 * time.Second) // Let pending work accumulate.
	r.revive(victim)
	r.waitSealing(victim)
	r.signal(victim, syscall.SIGSTOP)
	_, before := r.progress(other)
	r.takesOver(other)
	require.Eventually(r.t, func() bool { _, sealed := r.progress(other); return sealed > before },
		cassiatest.Patience, 50*time.Millisecond, "the other one should seal what it took over")
	r.verify(other, "taken over from the one that was stopped")
	r.signal(victim, syscall.SIGCONT)
	r.backAgain(victim, "back late in its own round")
}

// waitSealing waits until a process has sealed samples in a pass that hasn't ended.
func (r *pausedRig) waitSealing(i int) {
	round, before := r.progress(i)
	require.Eventually(r.t, func() bool {
		rounds, sealed := r.progress(i)
		if rounds == round && sealed > before {
			r.t.Logf("in its round %v, process %d has sealed %v samples", rounds+1, i, sealed-before)
			return true
		}
		round, before = rounds, sealed
		return false
	}, 2*cassiatest.Patience, 5*time.Millisecond, "it should find something to seal by itself")
}

// progress returns the number of completed passes of a process, and the number of samples that it has sealed.
func (r *pausedRig) progress(i int) (rounds, sealed float64) {
	text, err := get(r.ctx, r.processes[i].URL()+"/metrics")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "cassia_downsample_rounds_total":
			rounds, _ = strconv.ParseFloat(value, 64) // A text that isn't a number counts as 0.
		case "cassia_store_sealed_samples_total":
			sealed, _ = strconv.ParseFloat(value, 64)
		}
	}
	return rounds, sealed
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
