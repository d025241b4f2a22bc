package e2e

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/soak"
)

// sharedKills is the number of times that one of two processes, or both, are killed in a run. A soak multiplies it.
const sharedKills = 4

// TestTwoOnCassandraKilledAtAnyMoment kills one or both of two processes on one keyspace at random moments. As with a
// load balancer, requests are sent to the other process while one is down. After each kill, all acknowledged samples of
// one load are compared bit by bit: immediately through a running process, and through the killed one after its
// restart. A process that runs alone takes over all partitions.
func TestTwoOnCassandraKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary for two minutes: leave -short out")
	}
	t.Parallel() // much of the time is spent waiting for leases to pass over
	underLoadAlone(t)
	const partitions = 2
	flags := append(cassiatest.OnCassandra(t), "--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d",
		"--storage.partitions="+strconv.Itoa(partitions))
	binary := builtCassia(t)
	k := newKilled(t, sharedLoads(t),
		promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
		promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...))
	addresses := []string{k.programs[0].Address, k.programs[1].Address}
	for i, l := range k.loads { // the first load prefers the first process, the second the second, the last neither
		b := &balancer{addresses: addresses, spread: i == 2}
		b.at.Store(int64(i))
		l.client = &http.Client{Timeout: time.Minute, Transport: b}
	}
	k.processes = startAll(k.ctx, t, k.programs...)
	waitOwned(k.ctx, t, partitions/2, k.processes...)
	stopLoads := k.startLoads()
	for n := range soak.Times(t, sharedKills) {
		victim := n % 2
		survivor := 1 - victim
		k.live(k.rand.IntN(2))
		k.processes[victim].Kill()
		if n%4 == 3 { // both
			k.processes[survivor].Kill()
			k.revive(survivor)
		}
		k.verifyOne(survivor, "after a kill")
		if n < 2 {
			waitOwned(k.ctx, t, partitions, k.processes[survivor])
		}
		k.revive(victim)
		k.verifyOne(victim, "killed and started again")
	}
	stopLoads()
	waitOwned(k.ctx, t, partitions/2, k.processes...)
	k.verify(0, "at the end")
	k.seal(1)
	for i := range k.processes {
		k.verify(i, "all sealed")
	}
	k.stop(0)
	waitOwned(k.ctx, t, partitions, k.processes[1])
	k.stop(1)
	k.revive(0)
	k.verify(0, "stopped and started again")
	k.stop(0)
}

// taperAfter is the number of acknowledged samples after which a load on a cluster slows down. Otherwise a test that
// takes long, on a busy machine, would send and compare ever more samples.
const taperAfter = 4000

// sharedLoads returns the loads of killLoads, at a rate that two processes and a Cassandra can handle. After taperAfter
// samples, each sender pauses for a second before each request.
func sharedLoads(t *testing.T) []*load {
	loads := killLoads(t, time.Now())
	for _, l := range loads {
		l.rate /= 6
		l.taper = taperAfter
	}
	return loads
}

// tapered is a RoundTripper that pauses before each request once its load has sent enough samples.
type tapered struct {
	l     *load
	inner http.RoundTripper
}

// tapering returns a copy of the load's client, or of the default client, that slows down as tapered does.
func (l *load) tapering() *http.Client {
	client := http.Client{Timeout: time.Minute}
	if l.client != nil {
		client = *l.client
	}
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Transport = &tapered{l, client.Transport}
	return &client
}

func (p *tapered) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.l.acks.Count() > p.l.taper {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(time.Second):
		}
	}
	return p.inner.RoundTrip(r)
}
