package promql

import (
	"context"
	"errors"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
)

// Each query is bounded, and so is how many there are; all of them together could still take more than the machine has. So
// while any runs, somebody looks at the memory that is in use:
//
//	Options.Memory   0 ─────────────── tightShare ─────────────── fullShare ────── 1
//	                   queries begin     they wait for others        the newest ends
//	                                     to end, but for one         of who runs most
//
// Memory in use includes garbage; so Go's own limit must lie below fullShare (GOMEMLIMIT), and then it is next to nothing.
const (
	tightShare = 0.55
	fullShare  = 0.80
	// pressureInterval is how often that is.
	pressureInterval = 20 * time.Millisecond
)

// errPressure means that a query was ended because all together take too much memory.
var errPressure = errors.Join(engine.ErrUnavailable, errors.New("promql: queries take more memory than there is; ask for less, or again later"))

// pressure looks after the memory while there are queries.
type pressure struct {
	memory int64 // 0: nobody looks
	used   func() int64
	active *activeQueries
	gate   *gate

	mu       sync.Mutex
	queries  int
	watching bool
}

// begin counts a query that begins; the returned function ends it.
func (p *pressure) begin() (end func()) {
	if p.memory == 0 {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queries++; !p.watching {
		p.watching = true
		go panics.Repeat(context.Background(), "watching memory", p.watch)
	}
	return func() {
		p.mu.Lock()
		p.queries--
		p.mu.Unlock()
	}
}

// watch returns when there are no queries any more.
func (p *pressure) watch() {
	tick := time.NewTicker(pressureInterval)
	defer tick.Stop()
	for range tick.C {
		p.mu.Lock()
		if p.queries == 0 {
			p.watching = false
			p.gate.queries.setTight(false)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		used := float64(p.used()) / float64(p.memory)
		p.gate.queries.setTight(used > tightShare)
		if used > fullShare && p.active.shed() {
			runtime.GC() // Before others are ended because of memory that is garbage.
		}
	}
}

// inUse returns how much memory the process takes that isn't free within it: live objects, and garbage.
func inUse() int64 {
	sample := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64() - sample[2].Value.Uint64())
}

// shed ends the newest query of the tenants that have most, and reports whether there was any.
func (a *activeQueries) shed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	byTenant, most := map[string]int{}, 0
	for _, q := range a.byID {
		if q.computes {
			byTenant[q.Tenants[0]]++
			most = max(most, byTenant[q.Tenants[0]])
		}
	}
	var newest *ActiveQuery
	for _, q := range a.byID {
		if q.computes && byTenant[q.Tenants[0]] == most && (newest == nil || q.Since.After(newest.Since)) {
			newest = q
		}
	}
	if newest == nil {
		return false
	}
	newest.computes = false // It is on its way out.
	newest.cancel(errPressure)
	return true
}

// ended returns why a query has ended with an error: its own, or that there was too little memory.
func ended(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errPressure) {
		return unavailable(errPressure)
	}
	return asEnded(err)
}
