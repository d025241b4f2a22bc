package storage

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// pairs is a set of processes that share an engine and a clock, and receive the samples of replicas.
type pairs struct {
	t         testing.TB
	eng       engine.Engine
	now       time.Time
	change    func(*ha.Options)
	processes []*pairProcess
	skews     []time.Duration // how fast the clock of each process is
	step      time.Duration   // time between two passes over the elections
}

type pairProcess struct {
	store    *Store
	replicas *ha.Tracker
}

func newPairs(t testing.TB, eng engine.Engine, processes int, change func(*ha.Options)) *pairs {
	return newSkewedPairs(t, eng, make([]time.Duration, processes), change)
}

// newSkewedPairs is newPairs with a process for each skew.
func newSkewedPairs(t testing.TB, eng engine.Engine, skews []time.Duration, change func(*ha.Options)) *pairs {
	p := &pairs{t: t, eng: eng, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), skews: skews, change: change}
	for i := range skews {
		p.processes = append(p.processes, p.start(i))
	}
	t.Cleanup(func() {
		for _, process := range p.processes {
			p.stop(process)
		}
	})
	return p
}

func (p *pairs) start(i int) *pairProcess {
	opts := DefaultOptions()
	opts.Now = func() time.Time { return p.now.Add(p.skews[i]) }
	opts.Shared, opts.seams.still = true, true
	store := openReady(p.t, p.eng, opts)
	ro := ha.DefaultOptions()
	ro.Still = true
	if p.change != nil {
		p.change(&ro)
	}
	p.step = ro.Failover / 6
	replicas, err := NewTracker(p.t.Context(), store, ro)
	require.NoError(p.t, err)
	return &pairProcess{store, replicas}
}

func (p *pairs) stop(process *pairProcess) {
	if process != nil {
		process.replicas.Close()
		require.NoError(p.t, process.store.Close())
	}
}

// crash stops a process without any further write, and starts another process in its place.
func (p *pairs) crash(i int) {
	require.NoError(p.t, p.processes[i].store.Close())
	p.processes[i] = p.start(i)
}

// pass advances the time. Every process runs a pass over its elections as often as in production.
func (p *pairs) pass(d time.Duration) {
	step := p.step
	for ; d > 0; d -= step {
		p.now = p.now.Add(min(d, step))
		for _, process := range p.processes {
			require.NoError(p.t, process.store.member.SendHeartbeat(p.t.Context()))
			process.replicas.RunPass(p.t.Context())
		}
	}
}

// send sends a sample of each series of a replica at a given time to a process.
func (p *pairs) send(process int, replica string, at time.Time, v float64, series ...string) error {
	p.t.Helper()
	times := map[string]time.Time{}
	for _, name := range series {
		times[name] = at
	}
	return p.sendAt(process, replica, v, times)
}

// sendAt is like send, with a separate time for each series.
func (p *pairs) sendAt(process int, replica string, v float64, times map[string]time.Time) error {
	p.t.Helper()
	to := p.processes[process]
	require.NoError(p.t, to.replicas.CheckReplica("default", "c", replica))
	b := to.store.NewBatch("default")
	for name, at := range times {
		s, err := b.Define(nil, labels.FromStrings(labels.MetricName, name, "cluster", "c"))
		require.NoError(p.t, err)
		require.NoError(p.t, b.Float(s, at.UnixMilli(), 0, v))
	}
	return to.replicas.Commit(p.t.Context(), b, ha.ClusterName{Tenant: "default", Cluster: "c"}, replica)
}

// samples returns the samples of a series that a process finds, by time.
func (p *pairs) samples(process int, series string) (samples chunk.Samples) {
	p.t.Helper()
	found, err := p.processes[process].store.Select(p.t.Context(), query.Query{
		Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: rollup.Raw,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, series)},
	})
	require.NoError(p.t, err)
	for _, s := range found {
		require.NoError(p.t, s.Samples(&samples))
	}
	samples.Normalize()
	return samples
}

func (p *pairs) values(process int, series string) []float64 {
	p.t.Helper()
	samples := p.samples(process, series)
	return samples.V
}

// heldRows counts the held rows of the cluster.
func (p *pairs) heldRows() int { return p.heldRowsOf("") }

// heldRowsOf counts the held rows of a replica, or of all replicas if it is "".
func (p *pairs) heldRowsOf(replica string) (n int) {
	p.t.Helper()
	for era := range int64(100) {
		for row, err := range p.eng.Scan(
			context.Background(),
			engine.Range{Table: engine.Held, Partition: format.HeldPartition("default", "c", era)},
		) {
			require.NoError(p.t, err)
			if replica == "" || row.Clustering[0].Text == replica {
				n++
			}
		}
	}
	return n
}

func passAll(faultengine.Op) faultengine.Action { return faultengine.Pass() }

func TestOneReplicaIsStored(t *testing.T) {
	p := newPairs(t, faultengine.Wrap(memory.New(), passAll), 2, nil)
	// Replicas a and b each send to both processes in turn. Replica a sends first.
	for i := range 20 {
		require.NoError(t, p.send(i%2, "a", p.now, float64(i), "m"))
		require.NoError(t, p.send((i+1)%2, "b", p.now.Add(3*time.Second), 1000+float64(i), "m"))
		p.pass(10 * time.Second)
	}
	want := []float64{}
	for i := range 20 {
		want = append(want, float64(i))
	}
	for process := range 2 {
		require.Equal(t, want, p.values(process, "m"))
	}
	// Samples that the elected replica's samples cover must have been deleted.
	require.LessOrEqual(t, p.heldRows(), 5)
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	p := newPairs(t, faultengine.Wrap(memory.New(), passAll), 2, nil)
	var want []float64
	for i := range 10 {
		require.NoError(t, p.send(i%2, "a", p.now, float64(i), "m"))
		require.NoError(t, p.send(i%2, "b", p.now.Add(3*time.Second), 1000+float64(i), "m"))
		want = append(want, float64(i))
		p.pass(10 * time.Second)
	}
	for i := 10; i < 20; i++ { // a has stopped
		require.NoError(t, p.send(i%2, "b", p.now.Add(3*time.Second), 1000+float64(i), "m"))
		want = append(want, 1000+float64(i))
		p.pass(10 * time.Second)
	}
	// The samples of b after the last sample of a are also stored: the last sample of a is at 90 s, and the next one of
	// b at 93 s.
	want = append(want[:10:10], append([]float64{1009}, want[10:]...)...)
	for process := range 2 {
		require.Equal(t, want, p.values(process, "m"))
	}
	for i := 20; i < 30; i++ { // a is back, and b stays elected
		require.NoError(t, p.send(i%2, "a", p.now, float64(i), "m"))
		require.NoError(t, p.send(i%2, "b", p.now.Add(3*time.Second), 1000+float64(i), "m"))
		want = append(want, 1000+float64(i))
		p.pass(10 * time.Second)
	}
	for process := range 2 {
		require.Equal(t, want, p.values(process, "m"))
	}
	st := p.processes[0].replicas.Status("default")
	require.Len(t, st, 1)
	require.Equal(t, "b", st[0].Elected)
	require.Equal(t, int64(2), st[0].Elections, fmt.Sprint(st))
}

// TestHeldSamplesRaiseTheWatermark elects a replica whose last sample was held by a process that didn't know of the
// election, and was stored after the takeover. If the replica sends nothing else, the term of the next replica must
// start after this sample.
func TestHeldSamplesRaiseTheWatermark(t *testing.T) {
	p := newPairs(t, faultengine.Wrap(memory.New(), passAll), 2, nil)
	status := func() *ha.ClusterStatus {
		st := p.processes[0].replicas.Status("default")
		return &st[0]
	}
	begun := p.now
	require.NoError(t, p.send(0, "a", p.now, 0, "m"))
	for status().Elected == "a" || status().State != "settled" {
		require.Less(t, p.now.Sub(begun), 2*time.Minute)
		require.NoError(t, p.send(0, "b", p.now.Add(200*time.Millisecond), 1, "m"))
		require.NoError(t, p.send(1, "c", p.now.Add(500*time.Millisecond), 2, "m"))
		p.now = p.now.Add(time.Second)
		for _, process := range p.processes {
			require.NoError(t, process.store.member.SendHeartbeat(t.Context()))
		}
		p.processes[0].replicas.RunPass(t.Context())
	}
	require.Equal(t, "b", status().Elected)
	last := p.now
	require.NoError(t, p.send(1, "b", last, 1, "m"))
	require.Equal(t, 1, p.heldRowsOf("b"), "process 1 doesn't know of the election")
	for range 12 { // b has stopped.
		p.pass(5 * time.Second)
		require.NoError(t, p.send(1, "c", p.now.Add(500*time.Millisecond), 2, "m"))
	}
	require.Zero(t, p.heldRowsOf("b"))
	require.Equal(t, "c", status().Elected)
	samples := p.samples(0, "m")
	for i, at := range samples.T {
		require.Equal(t, at > last.UnixMilli(), samples.V[i] == 2, "%v", time.UnixMilli(at).Sub(begun))
	}
}
