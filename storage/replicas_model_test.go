package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/soak"
)

// modelReplica sends a sample every ten seconds and tries again what wasn't acknowledged, in order, as Prometheus does.
type modelReplica struct {
	name   string
	offset time.Duration
	alive  bool
	queue  []time.Time
	acked  []time.Time
}

// scrape takes a sample. One that was restarted has nothing from before.
func (r *modelReplica) scrape(at time.Time) {
	if r.alive {
		r.queue = append(r.queue, at.Add(r.offset))
	}
}

// TestReplicasModel plays random histories: replicas die and come back, processes crash, the engine fails, or does what it
// says it couldn't. In the end every acknowledged sample is covered, and replicas alternate at elections only.
func TestReplicasModel(t *testing.T) {
	histories := soak.Times(t, 40)
	if testing.Short() {
		histories = 8
	}
	first := soak.First(t)
	for i := range histories {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			playReplicas(t, rand.New(rand.NewPCG(seed, 14)))
		})
	}
}

func playReplicas(t *testing.T, rng *rand.Rand) {
	faults := false
	rule := func(op faultengine.Op) faultengine.Action {
		ours := op.Table == engine.Held || op.Table == engine.Chosen || op.Table == engine.Stage
		if !faults || !ours || op.Kind == faultengine.Scan || rng.IntN(12) > 0 {
			return faultengine.Pass()
		}
		if rng.IntN(2) == 0 {
			return faultengine.Fail(nil)
		}
		return faultengine.Lose(nil)
	}
	p := newPairs(t, faultengine.Wrap(memory.New(), rule), 2, nil)
	replicas := []*modelReplica{{name: "a", alive: true}, {name: "b", offset: 3 * time.Second, alive: true}}
	const rounds = 120
	for round := range rounds {
		faults = round < rounds-30
		if faults {
			switch rng.IntN(14) {
			case 0:
				// One of them dies or comes back: never both, for then nobody has the samples.
				i := rng.IntN(2)
				if replicas[1-i].alive {
					replicas[i].alive = !replicas[i].alive
					replicas[i].queue = nil
				}
			case 1:
				p.crash(rng.IntN(2))
			}
		}
		for _, r := range replicas {
			r.scrape(p.now)
			for len(r.queue) > 0 {
				at := r.queue[0]
				if err := p.send(rng.IntN(2), r.name, at, float64(r.offset.Seconds()), "m"); err != nil {
					break
				}
				r.acked = append(r.acked, at)
				r.queue = r.queue[1:]
			}
		}
		p.passAnyhow(10 * time.Second)
	}
	// What is held is resolved: sweeps find what crashed processes left.
	faults = false
	for range 3 {
		p.passAnyhow(6 * time.Minute)
	}
	stored := p.times("m")
	// An elected replica that is back before another is elected leaves what it missed: decisions/014.
	const gap = 55_000
	require.True(t, slices.IsSorted(stored))
	for _, r := range replicas {
		for _, at := range r.acked {
			i, _ := slices.BinarySearch(stored, at.UnixMilli())
			near := func(i int) bool {
				return i >= 0 && i < len(stored) && max(stored[i]-at.UnixMilli(), at.UnixMilli()-stored[i]) <= gap
			}
			require.True(t, near(i) || near(i-1), "the sample of %s at %v was acknowledged, and nothing near it is stored", r.name, at)
		}
	}
	// Both are stored where a process took its watermark along, and what was written and not acknowledged: here and there.
	both := 0
	for i := 1; i < len(stored); i++ {
		if stored[i]-stored[i-1] < 7_000 {
			both++
		}
	}
	require.LessOrEqual(t, both, 30, "of %d samples", len(stored))
}

// passAnyhow is pass where the engine may fail.
func (p *pairs) passAnyhow(d time.Duration) {
	step := p.processes[0].replicas.interval()
	for ; d > 0; d -= step {
		p.now = p.now.Add(min(d, step))
		for _, process := range p.processes {
			_ = process.store.processes.beat(p.t.Context()) // The next one may.
			process.replicas.Look(p.t.Context())
		}
	}
}

// times returns the timestamps that are stored of a series.
func (p *pairs) times(series string) []int64 {
	samples := p.samples(0, series)
	return samples.T
}
