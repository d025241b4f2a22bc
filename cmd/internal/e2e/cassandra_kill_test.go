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

// sharedKills is the number of times that an ordinary run kills one or both processes. A soak test multiplies this
// number.
const sharedKills = 4

// TestTwoOnCassandraKilledAtAnyMoment kills one or both of two processes on one keyspace at random moments. As with a
// load balancer, the loads are sent to either process, and only to the running process while the other one is down.
// After each kill, all acknowledged samples of one load are compared bit by bit: immediately through the running
// process, and later through the restarted one. A process that runs alone must take over all of the sealing.
func TestTwoOnCassandraKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary for two minutes: leave -short out")
	}
	t.Parallel() // Most of the time is spent waiting for leases to expire.
	underLoadAlone(t)
	const partitions = 2
	flags := append(cassiatest.OnCassandra(t), "--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d",
		"--storage.partitions="+strconv.Itoa(partitions))
	binary := builtCassia(t)
	k := newKilled(t, sharedLoads(t),
		promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
		promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...))
	addresses := []string{k.programs[0].Address, k.programs[1].Address}
	for i, l := range k.loads { // The first two loads each prefer a process, the last doesn't.
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
		if n%4 == 3 { // Kill both.
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

// taperAfter is the number of acknowledged samples after which a load on a cluster slows down. Otherwise a test that is
// slow on a busy machine would send more samples, and the comparisons would take even longer.
const taperAfter = 4000

// sharedLoads returns the loads of killLoads at a rate that two processes and a Cassandra node can handle. After
// taperAfter samples, each sender pauses for a second before each request.
func sharedLoads(t *testing.T) []*load {
	loads := killLoads(t, time.Now())
	for _, l := range loads {
		l.rate /= 6
		l.taper = taperAfter
	}
	return loads
}

// tapered is a transport that pauses before each request once the load has sent enough samples.
type tapered struct {
	l     *load
	inner http.RoundTripper
}

// tapering returns an HTTP client that pauses like tapered. It is based on the load's client or, if that is nil, on a
// client that only uses the first process.
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
