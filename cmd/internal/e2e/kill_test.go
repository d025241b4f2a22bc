package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/soak"
)

// kills is the number of kills in an ordinary run. A soak test multiplies this number.
const kills = 8

// killed consists of one cassia process, or multiple processes on the same data, that are killed repeatedly under load.
type killed struct {
	t         *testing.T
	ctx       context.Context
	programs  []promrig.Program
	processes []*promrig.Process
	rand      *rand.Rand
	loads     []*load
}

func newKilled(t *testing.T, loads []*load, programs ...promrig.Program) *killed {
	seed := soak.Seed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	t.Cleanup(cancel)
	return &killed{t: t, ctx: ctx, programs: programs, rand: rand.New(rand.NewPCG(seed, 0)), loads: loads}
}

// load is one of the concurrent workloads.
type load struct {
	name     string
	g        *bench.Generator
	acks     *bench.Acks
	protocol bench.Protocol
	senders  int
	rate     float64
	taper    int64        // if positive, the number of acknowledged samples after which the load slows down
	client   *http.Client // nil: a client that only uses the first process
	done     chan error
}

// killLoads returns the workloads. They send hours of samples per minute, so that slots end and are sealed during the
// test. Each has out-of-order samples, native histograms and unusual values.
func killLoads(t *testing.T, now time.Time) []*load {
	recent := bench.Workload{
		Series: 120, Steps: 3600, IntervalMs: 20_000, StartMs: now.Add(-20*time.Hour - time.Minute).UnixMilli(),
		Histograms: 24, Odd: 6, LatePercent: 10, LateSteps: 40,
	}
	// These samples arrive days late, in slots that were sealed before.
	old := recent
	old.Series, old.StartMs, old.Seed, old.LateSteps = 60, now.Add(-10*24*time.Hour).UnixMilli(), 7, 300
	// These targets exist only for minutes, so that new series arrive continuously.
	churning := recent
	churning.Series, churning.Seed, churning.ChurnPerHour = 80, 11, 3
	loads := []*load{
		{name: "recent", protocol: bench.V1, senders: 4, rate: 1500, g: generatorOf(t, recent)},
		{name: "old", protocol: bench.V2, senders: 2, rate: 500, g: generatorOf(t, old)},
		{name: "churning", protocol: bench.V2, senders: 2, rate: 500, g: generatorOf(t, churning)},
	}
	for _, l := range loads {
		l.acks = bench.NewAcks(l.g.Workload)
		l.done = make(chan error, 1)
	}
	return loads
}

func generatorOf(t *testing.T, w bench.Workload) *bench.Generator {
	g, err := bench.NewGenerator(w)
	require.NoError(t, err)
	return g
}

// TestKilledAtAnyMoment kills the binary at random moments under load. After each restart, it compares the acknowledged
// samples of one random load with the stored ones, bit by bit. At the end, it compares the samples of all loads.
func TestKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary for a minute: leave -short out")
	}
	t.Parallel()
	binary := builtCassia(t)
	k := newKilled(t, killLoads(t, time.Now()), promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t),
		"--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d"))
	k.processes = []*promrig.Process{start(k.ctx, t, k.programs[0])}
	stopLoads := k.startLoads()
	for range soak.Times(t, kills) {
		k.live(0)
		k.processes[0].Kill()
		k.revive(0)
		k.verifyOne(0, "after a kill")
	}
	stopLoads()
	k.verify(0, "at the end")
	k.seal(0)
	k.verify(0, "all sealed")
	k.stop(0)
	k.revive(0)
	k.verify(0, "stopped and started again")
	k.stop(0)
}

// known returns a copy of k with the samples acknowledged so far, for a later comparison.
func (k *killed) known() *killed {
	then := *k
	then.loads = nil
	for _, l := range k.loads {
		before := *l
		before.acks = l.acks.Snapshot()
		then.loads = append(then.loads, &before)
	}
	return &then
}

// startLoads starts to send the loads. The returned function stops them.
func (k *killed) startLoads() (stop func()) {
	loading, cancel := context.WithCancel(k.ctx)
	for _, l := range k.loads {
		go func() { l.done <- l.run(loading, k.programs[0].Address) }()
	}
	k.t.Cleanup(cancel)
	return func() {
		cancel()
		for _, l := range k.loads {
			if err := <-l.done; !errors.Is(err, context.Canceled) {
				require.NoError(k.t, err, l.name) // The load has sent all samples before it was stopped.
			}
		}
	}
}

// run sends a load until ctx ends. A request that was interrupted by a kill is sent again, as Prometheus does.
func (l *load) run(ctx context.Context, address string) error {
	client := l.client
	if l.taper > 0 {
		client = l.tapering()
	}
	_, err := bench.Run(ctx, l.g, l.acks, bench.Options{
		URL: "http://" + address + "/api/v1/write", Protocol: l.protocol, Tenant: l.name, Senders: l.senders,
		RequestSamples: 25, Rate: l.rate, RetryFor: 5 * time.Minute, Client: client,
	})
	return err
}

// live lets the processes run for a random time. In two of three calls, it then requests that process sealer seals all
// samples, and returns shortly afterwards, often while that process is sealing.
func (k *killed) live(sealer int) {
	time.Sleep(time.Duration(k.rand.Int64N(int64(1500 * time.Millisecond))))
	if k.rand.IntN(3) == 0 {
		return
	}
	url := k.processes[sealer].URL() + "/-/seal"
	go func() { _ = promrig.PostEmpty(k.ctx, url) }() // A kill may interrupt it.
	time.Sleep(time.Duration(k.rand.Int64N(int64(400 * time.Millisecond))))
}

// revive restarts a process that was killed or stopped.
func (k *killed) revive(i int) {
	began := time.Now()
	k.processes[i] = start(k.ctx, k.t, k.programs[i])
	k.t.Logf("process %d was ready again after %s", i, time.Since(began))
}

func (k *killed) stop(i int) { require.NoError(k.t, k.processes[i].Terminate(cassiatest.StopWithin)) }

// seal requests a process to seal all samples, and waits for it.
func (k *killed) seal(i int) {
	k.t.Helper()
	require.NoError(k.t, patiently(func() error { return promrig.PostEmpty(k.ctx, k.processes[i].URL()+"/-/seal") }))
}

// verify compares the stored samples, read through one process, with the samples that any process has acknowledged.
func (k *killed) verify(i int, when string) { k.verifyLoads(i, when, k.loads) }

// verifyOne is like verify, but for one random load. A lost sample is still detected at the end, when all loads are
// verified.
func (k *killed) verifyOne(i int, when string) {
	one := k.rand.IntN(len(k.loads))
	k.verifyLoads(i, when, k.loads[one:one+1])
}

func (k *killed) verifyLoads(i int, when string, loads []*load) {
	var all errgroup.Group
	for _, l := range loads {
		all.Go(func() error {
			began, acks := time.Now(), l.acks.Snapshot()
			var found bench.Finding
			err := patiently(func() (err error) {
				found, err = bench.Verify(k.ctx, l.g, acks, bench.Reader{
					URL: k.processes[i].URL() + "/api/v1/read", Tenant: l.name,
				})
				return err
			})
			switch {
			case err != nil:
				return fmt.Errorf("load %s: %w", l.name, err)
			case !found.IsOK() || found.Acknowledged != acks.Count():
				return fmt.Errorf("load %s: %s", l.name, found)
			}
			k.t.Logf("%s, process %d, load %s: %d acknowledged, %d there, compared in %s",
				when, i, l.name, found.Acknowledged, found.Seen, time.Since(began).Round(time.Millisecond))
			return nil
		})
	}
	require.NoError(k.t, all.Wait(), when)
}
