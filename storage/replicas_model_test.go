package storage

import (
	"context"
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

// modelReplica sends a sample every ten seconds. It retries samples that weren't acknowledged in their order, as
// Prometheus does.
type modelReplica struct {
	name   string
	offset time.Duration
	// ahead is how fast the replica's clock is. further is the additional lead of one of its series.
	ahead, further time.Duration
	alive          bool
	queue          []modelScrape
	acked          []modelScrape
}

// modelScrape is a scrape of a replica: at is its time by the replica's clock, and real the true time.
type modelScrape struct{ at, real, further time.Time }

// modelDelete is a delete of the series m, with the samples that were acknowledged before it.
type modelDelete struct {
	start, end time.Time
	done       bool
	before     map[int64]bool // by the true time of the scrape
}

// near reports whether a sample is in the range of the delete, or close to it.
func (d *modelDelete) near(at time.Time, gap time.Duration) bool {
	return !at.Before(d.start.Add(-gap)) && !at.After(d.end.Add(gap))
}

// scrape adds a scrape to the queue of the replica if the replica is running.
func (r *modelReplica) scrape(now time.Time) {
	if r.alive {
		real := now.Add(r.offset)
		at := real.Add(r.ahead)
		r.queue = append(r.queue, modelScrape{at, real, at.Add(r.further)})
	}
}

// setClock makes the replica's clock fast, or corrects it. No two samples of a series may have the same time, because
// one of them would replace the other. Therefore the milliseconds of ahead are derived from the round and below 128,
// and those of further are multiples of 128, so that their sums also differ.
func (r *modelReplica) setClock(rng *rand.Rand, round int) {
	unique := time.Duration(round+1) * time.Millisecond
	r.ahead, r.further = 0, 128*unique
	if rng.IntN(2) == 0 {
		r.ahead = time.Duration(rng.IntN(300))*time.Second + unique
	}
	if rng.IntN(2) == 0 {
		r.further = time.Duration(rng.IntN(280))*time.Second + 128*unique
	}
}

// TestReplicasModel runs random histories: replicas stop and return, processes crash, and the engine fails, or returns
// errors for writes that it applies. At the end every acknowledged sample must be stored or covered, and stored samples
// may switch from one replica to another only at elections.
func TestReplicasModel(t *testing.T) {
	playEach(t, 40, 14, func(int) replicasPlay { return replicasPlay{replicas: 2} })
}

// TestReplicasModelAhead is TestReplicasModel with replicas whose clocks are sometimes fast, or that have one series
// ahead of the clock.
func TestReplicasModelAhead(t *testing.T) {
	playEach(t, 40, 23, func(i int) replicasPlay { return replicasPlay{replicas: 2 + i%2, ahead: true} })
}

// TestReplicasModelDeletes is TestReplicasModel with deletes, also while the engine fails. Samples that were
// acknowledged before a delete must never reappear, whichever process held them.
func TestReplicasModelDeletes(t *testing.T) {
	playEach(t, 30, 25, func(i int) replicasPlay { return replicasPlay{replicas: 2 + i%2, deletes: true} })
}

// TestReplicasModelSeals is TestReplicasModel without crashes and faults of the engine. The stored samples then switch
// from one replica to another exactly at elections, even if samples are sealed before another replica is elected.
func TestReplicasModelSeals(t *testing.T) {
	playEach(t, 40, 26, func(i int) replicasPlay { return replicasPlay{replicas: 2 + i%2, calm: true} })
}

// playEach runs histories in parallel. With -short it runs a fifth of them. Each history has its own seed. stream is a
// constant of the test that makes its histories differ from those of other tests with the same seeds.
func playEach(t *testing.T, histories int, stream uint64, play func(i int) replicasPlay) {
	t.Parallel()
	if histories = soak.Histories(t, histories); testing.Short() && !soak.UnderRace {
		histories = max(1, histories/5)
	}
	first := soak.FirstSeed(t)
	for i := range histories {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			drawn := play(i)
			drawn.probes = seed%4 > 1
			playReplicas(t, rand.New(rand.NewPCG(seed, stream)), drawn)
		})
	}
}

// replicasPlay are the parameters of a history of replicas.
type replicasPlay struct {
	replicas       int
	ahead, deletes bool
	calm           bool // processes don't crash, and the engine doesn't fail
	probes         bool // the engine can probe multiple partitions at once
}

func playReplicas(t *testing.T, rng *rand.Rand, play replicasPlay) {
	n, ahead, faults := play.replicas, play.ahead, false
	rule := func(op faultengine.Op) faultengine.Action {
		ours := op.Table == engine.Held || op.Table == engine.Chosen || op.Table == engine.Stage
		if !faults || play.calm || !ours || op.Kind == faultengine.Scan || rng.IntN(12) > 0 {
			return faultengine.Pass()
		}
		if rng.IntN(2) == 0 {
			return faultengine.Fail(nil)
		}
		return faultengine.Lose(nil)
	}
	var eng engine.Engine = faultengine.Wrap(memory.New(), rule)
	if play.probes {
		eng = probing{eng}
	}
	p := newPairs(t, eng, 2, nil)
	replicas := []*modelReplica{
		{name: "a", alive: true}, {name: "b", offset: 3 * time.Second, alive: true},
		{name: "c", offset: 6 * time.Second, alive: true},
	}[:n]
	var deleted []*modelDelete
	const rounds = 120
	for round := range rounds {
		faults = round < rounds-30
		if faults {
			switch rng.IntN(14) {
			case 0:
				// A replica stops or returns. At least one is always running, because otherwise no replica has the
				// samples.
				i := rng.IntN(n)
				others := slices.Concat(replicas[:i], replicas[i+1:])
				if slices.ContainsFunc(others, func(r *modelReplica) bool { return r.alive }) {
					replicas[i].alive = !replicas[i].alive
					replicas[i].queue = nil
				}
			case 1:
				if !play.calm {
					p.crash(rng.IntN(2))
				}
			case 2:
				if ahead {
					replicas[rng.IntN(n)].setClock(rng, round)
				}
			case 3:
				if play.deletes {
					deleted = append(deleted, p.deleteSome(rng, replicas))
					faults = false
					p.requireDeleted(deleted)
				}
			case 4:
				_ = p.processes[rng.IntN(2)].store.SealAll(t.Context()) // A later seal may succeed.
			}
		}
		for _, r := range replicas {
			r.scrape(p.now)
			for len(r.queue) > 0 {
				s := r.queue[0]
				times := map[string]time.Time{"m": s.at}
				if ahead {
					times["further"] = s.further
				}
				if err := p.sendAt(rng.IntN(2), r.name, float64(s.real.UnixMilli()), times); err != nil {
					break
				}
				r.acked = append(r.acked, s)
				r.queue = r.queue[1:]
			}
		}
		p.passAnyhow(10 * time.Second)
	}
	// All held samples are now stored or deleted. Sweeps adopt the rows of crashed processes.
	faults = false
	for range 3 {
		p.passAnyhow(6 * time.Minute)
	}
	p.requireDeleted(deleted)
	// If an elected replica stops and returns before another replica is elected, its samples have a gap while it was
	// stopped (design/ha-pairs.md).
	const gap = 55_000
	near := func(sorted []int64, at int64) bool {
		i, _ := slices.BinarySearch(sorted, at)
		return i < len(sorted) && sorted[i]-at <= gap || i > 0 && at-sorted[i-1] <= gap
	}
	requireNear := func(series string) {
		stampOf := func(s modelScrape) int64 {
			if series == "further" {
				return s.further.UnixMilli()
			}
			return s.at.UnixMilli()
		}
		stored := p.scraped(series)
		var stamps []int64 // of the stored samples
		for _, r := range replicas {
			for _, s := range r.acked {
				if _, ok := slices.BinarySearch(stored, s.real.UnixMilli()); ok {
					stamps = append(stamps, stampOf(s))
				}
			}
		}
		slices.Sort(stamps)
		for _, r := range replicas {
			for _, s := range r.acked {
				if slices.ContainsFunc(
					deleted, func(d *modelDelete) bool { return d.near(s.at, gap*time.Millisecond) },
				) {
					continue // The sample that covered this one may have been deleted.
				}
				// If clocks were fast and were set back, a sample may be covered by one with nearly the same timestamp
				// that was scraped at another time.
				require.True(
					t, near(stored, s.real.UnixMilli()) || ahead && near(stamps, stampOf(s)),
					"the sample of %s of %v (by its clock %v) was acknowledged, and nothing near it is stored", r.name,
					s.real, s.at,
				)
			}
		}
	}
	requireNear("m")
	if ahead {
		requireNear("further")
		return
	}
	if play.calm {
		p.requireFewSwitches()
	}
	// Samples of both replicas may be stored if a process crashed before it stored its watermark, or if samples were
	// written and not acknowledged. Both are rare.
	stored, both := p.scraped("m"), 0
	for i := 1; i < len(stored); i++ {
		if stored[i]-stored[i-1] < 7_000 {
			both++
		}
	}
	require.LessOrEqual(t, both, 30, "of %d samples", len(stored))
}

// requireFewSwitches requires that the stored samples switch from one replica to another at most once per election. The
// offset of a sample within ten seconds identifies its replica.
func (p *pairs) requireFewSwitches() {
	p.t.Helper()
	switches, stored := int64(0), p.scraped("m")
	for i := 1; i < len(stored); i++ {
		if stored[i]%10_000 != stored[i-1]%10_000 {
			switches++
		}
	}
	st := p.processes[0].replicas.Status("default")
	require.LessOrEqual(p.t, switches, st[0].Elections-1)
}

// deleteSome deletes the series m in a random range of time, with a random process.
func (p *pairs) deleteSome(rng *rand.Rand, replicas []*modelReplica) *modelDelete {
	d := &modelDelete{
		start: p.now.Add(-time.Duration(rng.IntN(1800)) * time.Second), end: p.now.Add(30 * time.Second),
		before: map[int64]bool{},
	}
	if rng.IntN(2) == 0 {
		d.end = d.start.Add(time.Duration(rng.IntN(600)) * time.Second)
	}
	for _, r := range replicas {
		for _, s := range r.acked {
			if d.near(s.at, 0) {
				d.before[s.real.UnixMilli()] = true
			}
		}
	}
	err := p.processes[rng.IntN(len(p.processes))].store.Delete(
		p.t.Context(), "default", d.start.UnixMilli(), d.end.UnixMilli(), equal("__name__", "m"),
	)
	d.done = err == nil
	return d
}

// requireDeleted requires that no process finds deleted samples.
func (p *pairs) requireDeleted(all []*modelDelete) {
	p.t.Helper()
	for i := range p.processes {
		shown := p.values(i, "m")
		for _, d := range all {
			for _, v := range shown {
				require.False(
					p.t, d.done && d.before[int64(v)], "process %d shows what was deleted: %v", i,
					time.UnixMilli(int64(v)).UTC(),
				)
			}
		}
	}
}

// passAnyhow is like pass, with an engine that may fail.
func (p *pairs) passAnyhow(d time.Duration) {
	step := p.step
	for ; d > 0; d -= step {
		p.now = p.now.Add(min(d, step))
		for _, process := range p.processes {
			_ = process.store.member.SendHeartbeat(p.t.Context()) // The next heartbeat may succeed.
			process.replicas.RunPass(p.t.Context())
		}
	}
}

// scraped returns the true times, in milliseconds, of the scrapes whose samples are stored for a series.
func (p *pairs) scraped(series string) (times []int64) {
	for _, v := range p.values(0, series) {
		times = append(times, int64(v))
	}
	slices.Sort(times)
	return times
}

// probing is an engine that can probe multiple partitions at once.
type probing struct{ engine.Engine }

// Occupied implements engine.Prober.
func (p probing) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	return faultengine.Occupied(ctx, p.Engine, t, partitions)
}
