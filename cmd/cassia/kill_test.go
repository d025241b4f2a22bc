package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// kills is how often the process is killed in a run.
const kills = 24

// killed is a cassia that is killed again and again while a load goes on.
type killed struct {
	t       *testing.T
	ctx     context.Context
	program promrig.Program
	process *promrig.Process
	rand    *rand.Rand
	loads   []*load
}

// load is one of the workloads that are sent at the same time.
type load struct {
	name     string
	g        *bench.Generator
	acks     *bench.Acks
	protocol bench.Protocol
	senders  int
	rate     float64
	done     chan error
}

// killLoads are the workloads: they advance through hours of samples' time in a minute, so that slots end and
// are sealed meanwhile. Each has out-of-order samples, native histograms and odd values.
func killLoads(t *testing.T, now time.Time) []*load {
	recent := bench.Workload{
		Series: 120, Steps: 3600, IntervalMs: 20_000, StartMs: now.Add(-20*time.Hour - time.Minute).UnixMilli(),
		Histograms: 24, Odd: 6, LatePercent: 10, LateSteps: 40,
	}
	// These come days late, so that they go by the way of old slots.
	old := recent
	old.Series, old.StartMs, old.Seed, old.LateSteps = 60, now.Add(-10*24*time.Hour).UnixMilli(), 7, 300
	// A target lives for minutes only, so that new series come all the time.
	churning := recent
	churning.Series, churning.Seed, churning.ChurnPerHour = 80, 11, 3
	loads := []*load{
		{name: "recent", protocol: bench.V1, senders: 4, rate: 3000, g: generatorOf(t, recent)},
		{name: "old", protocol: bench.V2, senders: 2, rate: 1000, g: generatorOf(t, old)},
		{name: "churning", protocol: bench.V2, senders: 2, rate: 1000, g: generatorOf(t, churning)},
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

// TestKilledAtAnyMoment kills the binary at random moments under load and compares, after each restart,
// everything that was acknowledged with what can be read, bit by bit.
func TestKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary for a minute: leave -short out")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	binary, err := promrig.BuildCassia(t.TempDir())
	require.NoError(t, err)
	k := &killed{
		t: t, ctx: ctx, rand: rand.New(rand.NewPCG(seed, 0)), loads: killLoads(t, time.Now()),
		program: promrig.Cassia(binary, t.TempDir(), address(t), "--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d"),
	}
	k.process = start(ctx, t, k.program)
	loading, stopLoads := context.WithCancel(ctx)
	defer stopLoads()
	for _, l := range k.loads {
		go func() { l.done <- l.run(loading, k.program.Address) }()
	}
	for range kills {
		k.liveAndDie()
		k.verify("after a kill")
	}
	stopLoads()
	for _, l := range k.loads {
		if err := <-l.done; !errors.Is(err, context.Canceled) {
			require.NoError(t, err, l.name) // all was sent before the end
		}
	}
	k.verify("at the end")
	require.NoError(t, promrig.Post(ctx, k.process.URL()+"/-/seal"))
	k.verify("all sealed")
	require.NoError(t, k.process.Terminate(20*time.Second))
	k.process = start(ctx, t, k.program)
	k.verify("stopped and started again")
	require.NoError(t, k.process.Terminate(20*time.Second))
}

// run sends until ctx ends. A request that was cut off by a kill is sent again, as Prometheus does.
func (l *load) run(ctx context.Context, address string) error {
	_, err := bench.Run(ctx, l.g, l.acks, bench.Options{
		URL: "http://" + address + "/api/v1/write", Protocol: l.protocol, Tenant: l.name, Senders: l.senders,
		RequestSamples: 25, Rate: l.rate, RetryFor: 5 * time.Minute,
	})
	return err
}

// liveAndDie lets the process work for a random time, often in the middle of sealing everything, kills it,
// and starts it again.
func (k *killed) liveAndDie() {
	time.Sleep(time.Duration(k.rand.Int64N(int64(1500 * time.Millisecond))))
	sealed := make(chan struct{})
	close(sealed)
	if k.rand.IntN(3) > 0 {
		sealed = make(chan struct{})
		go func() {
			defer close(sealed)
			_ = promrig.Post(k.ctx, k.process.URL()+"/-/seal") // the kill may cut it off
		}()
		time.Sleep(time.Duration(k.rand.Int64N(int64(400 * time.Millisecond))))
	}
	k.process.Kill()
	<-sealed
	began := time.Now()
	k.process = start(k.ctx, k.t, k.program)
	k.t.Logf("started again in %s", time.Since(began))
}

// verify compares what can be read with what was acknowledged before, by remote read and by the count that a
// query gives.
func (k *killed) verify(when string) {
	var all errgroup.Group
	for _, l := range k.loads {
		all.Go(func() error {
			began, acks := time.Now(), l.acks.Snapshot()
			found, err := bench.Verify(k.ctx, l.g, acks, bench.Reader{URL: k.process.URL() + "/api/v1/read", Tenant: l.name})
			switch {
			case err != nil:
				return fmt.Errorf("load %s: %w", l.name, err)
			case !found.OK() || found.Acknowledged != acks.Count():
				return fmt.Errorf("load %s: %s", l.name, found)
			}
			k.t.Logf("%s, load %s: %d acknowledged, %d there, compared in %s", when, l.name, found.Acknowledged, found.Seen, time.Since(began).Round(time.Millisecond))
			return nil
		})
	}
	require.NoError(k.t, all.Wait(), when)
}
