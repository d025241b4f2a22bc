package promql

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/panics"
)

// Each query is bounded, and so is how many there are; all of them together could still take more than the machine has. So
// while any runs, the memory in use is measured again and again:
//
//	Options.Memory   0 ───────────── tightShare ───────────── fullShare ────── lastShare ── 1
//	                   large reads begin     one large read at     one large read after       and another, without
//	                   as memory is counted  a time                another ends, no other     waiting for the collector
//	                                                               grows
//
// Small reads begin and go on at every level: together they hold little.
//
// Memory in use includes garbage; so Go's own limit must lie below fullShare (GOMEMLIMIT), and then it is next to nothing.
const (
	tightShare = 0.55
	fullShare  = 0.80
	lastShare  = 0.90
	// pressureInterval is how often that is.
	pressureInterval = 10 * time.Millisecond
)

// errPressure means that a read was ended because all together take too much memory, errTooLarge that it alone does.
var (
	errPressure = errors.Join(engine.ErrUnavailable, errors.New("promql: queries need more memory than is available (see --memory.max-bytes); query less data, or retry later"))
	errTooLarge = fmt.Errorf("%w: it needs more memory than --memory.max-bytes allows; query fewer series or a shorter range", meter.ErrQueryTooLarge)
)

// pressure looks after the memory while there are reads.
type pressure struct {
	memory int64 // 0: nobody looks
	used   func() int64
	gate   *gate

	mu       sync.Mutex
	reads    int
	watching bool
	// relief is closed when memory isn't full any more; nil: it isn't.
	relief atomic.Pointer[chan struct{}]
	// collecting: garbage is being collected. collected: it was, since memory is full and since a read was ended.
	collecting, collected atomic.Bool
	shed                  atomic.Int64 // reads that were ended
}

// begin counts a read that begins; the returned function ends it.
func (p *pressure) begin() (end func()) {
	if p.memory == 0 {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads++; !p.watching {
		p.watching = true
		go panics.Repeat(context.Background(), "watching memory", p.watch)
	}
	return func() {
		p.mu.Lock()
		p.reads--
		p.mu.Unlock()
	}
}

// watch returns when there are no reads any more.
func (p *pressure) watch() {
	tick := time.NewTicker(pressureInterval)
	defer tick.Stop()
	for range tick.C {
		p.mu.Lock()
		if p.reads == 0 {
			p.watching = false
			p.setLevel(0)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.look()
	}
}

// look measures the memory, and ends a read if it is full.
func (p *pressure) look() {
	share := float64(p.used()) / float64(p.memory)
	p.setLevel(share)
	if share <= fullShare {
		return
	}
	p.gate.readers.dropSlowest()
	if p.collecting.Load() && share <= lastShare {
		return
	}
	if p.gate.shed(p.collected.Load(), share > lastShare) {
		p.shed.Add(1)
		p.collected.Store(false)
	}
	if !p.collected.Load() {
		p.collect()
	}
}

// setLevel lets reads wait or go on.
func (p *pressure) setLevel(share float64) {
	p.gate.large.setTight(share > tightShare)
	relief := p.relief.Load()
	switch {
	case share > fullShare && relief == nil:
		c := make(chan struct{})
		p.collected.Store(false)
		p.relief.Store(&c)
	case share <= fullShare && relief != nil:
		p.relief.Store(nil)
		close(*relief)
	}
}

// collect collects garbage, before others are ended because of memory that is garbage.
func (p *pressure) collect() {
	if !p.collecting.CompareAndSwap(false, true) {
		return
	}
	shed := p.shed.Load()
	go func() {
		runtime.GC()
		p.collected.Store(p.shed.Load() == shed)
		p.collecting.Store(false)
	}()
}

// wait returns when memory isn't full, or with the error of ctx.
func (p *pressure) wait(ctx context.Context) error {
	relief := p.relief.Load()
	if relief == nil {
		return nil
	}
	select {
	case <-*relief:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Memory returns how much memory the process uses, bytes, without free memory that Go keeps for itself, and how much it may use; 0:
// nothing bounds it.
func (e *Engine) Memory() (used, most int64) { return e.pressure.used(), e.pressure.memory }

// inUse returns how much memory the process uses, bytes: live objects and garbage, and memory outside of Go's heap.
func inUse() int64 {
	sample := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(sample)
	free := sample[2].Value.Uint64()
	return int64(max(sample[0].Value.Uint64()-sample[1].Value.Uint64(), anonymous()) - free)
}

// smallTime is how long a small read may run while memory is short. What it holds is known in advance, except for what the evaluator makes
// of it, which takes time.
const smallTime = time.Second

// garbageShare is which part of the bytes of large reads the only one holds at least to be ended before garbage is collected: if it holds less, memory is full of
// garbage that earlier reads have left.
const garbageShare = 4

// shed ends the newest read of the tenants that have most, of large ones if any run, and reports whether it did: those that wait for their
// turn hold little. Unless it is urgent, it waits until one that was told to end has ended, and until garbage was collected before it
// ends the only large one. Small ones never end because of large ones: not before these have ended, their garbage is collected, and their
// answers are read, unless they run for longer than small ones do.
func (g *gate) shed(collected, urgent bool) bool {
	answers := g.large.holding() // Of none that runs, if there are none.
	g.mu.Lock()
	defer g.mu.Unlock()
	var large, small, waiting []int
	ending := false
	for place, e := range g.entered {
		switch {
		case e.read == nil:
		case e.read.ending && !urgent:
			return false
		case e.read.ending:
			ending = true
		case e.read.large.Load():
			large = append(large, place)
		case e.read.bytes.Load() > g.largeBytes:
			waiting = append(waiting, place)
		case answers == 0 || time.Since(e.read.began) >= smallTime:
			small = append(small, place)
		}
	}
	cause := errPressure
	switch len(large) {
	case 0:
		if !collected || ending {
			return false
		}
		if large = waiting; len(large) == 0 {
			large = small
		}
	case 1:
		r := g.entered[large[0]].read
		if !collected && (!urgent || r.bytes.Load() < g.large.bytes/garbageShare) {
			return false
		}
		if collected && (len(waiting) == 0 || r.bytes.Load() > g.large.bytes) {
			cause = errTooLarge
		}
	}
	byTenant, most, newest := map[string]int{}, 0, 0
	for _, place := range large {
		name := g.entered[place].shares[0].name
		byTenant[name]++
		most = max(most, byTenant[name])
	}
	for _, place := range large {
		if byTenant[g.entered[place].shares[0].name] == most {
			newest = max(newest, place)
		}
	}
	if newest == 0 {
		return false
	}
	r := g.entered[newest].read
	r.ending = true // It is on its way out.
	r.cancel(cause)
	return true
}

// ended returns why a query has ended with an error: its own, or that there was too little memory.
func ended(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if short := shortage(ctx); short != nil {
		return short
	}
	return asEnded(err)
}

// shortage returns the error of a read that was ended because memory was short, or because too many large reads were waiting; nil: it wasn't.
func shortage(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errPressure):
		return unavailable(errPressure)
	case errors.Is(cause, errTooLarge):
		return storage.PlainError(errTooLarge)
	case errors.Is(cause, ErrTooManyQueries):
		return unavailable(cause)
	}
	return nil
}

// ReadError returns the error of a read, see Engine.Enter, that ended with another: why it was ended, if memory was short.
func ReadError(ctx context.Context, err error) error { return asRead(ctx, err) }

// asRead is asPrometheus for the error of a read of series or labels, which may have been ended because memory was short.
func asRead(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if short := shortage(ctx); short != nil {
		return noteError(ctx, short)
	}
	return noteError(ctx, asPrometheus(err))
}
