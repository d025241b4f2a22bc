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

// The number of queries and the memory of each are bounded, but all queries together could still take more memory than
// the machine has. So while any query runs, the memory in use is measured repeatedly:
//
//	Options.Memory   0 ───────────── tightShare ───────────── fullShare ────── criticalShare ── 1
//	                   large reads start     one large read at     one large read after       and another, without
//	                   as memory is counted  a time                another ends, no other     waiting for the collector
//	                                                               grows
//
// Small reads start and continue at every level, because together they hold little.
//
// Memory in use includes garbage. So Go's own limit (GOMEMLIMIT) must be below fullShare: Go collects garbage more
// often close to its limit, and little of the memory is garbage.
const (
	tightShare    = 0.55
	fullShare     = 0.80
	criticalShare = 0.90
	// pressureInterval is the time between two measurements.
	pressureInterval = 10 * time.Millisecond
)

// errPressure means that a read was ended because all reads together take too much memory. errTooLarge means that the
// read alone takes too much.
var (
	errPressure = errors.Join(engine.ErrUnavailable, errors.New(
		"promql: queries need more memory than is available (see --memory.max-bytes); query less data, or retry later",
	))
	errTooLarge = fmt.Errorf(
		"%w: it needs more memory than --memory.max-bytes allows; query fewer series or a shorter range",
		meter.ErrQueryTooLarge,
	)
)

// pressure measures and bounds the memory while there are reads.
type pressure struct {
	memory int64 // 0: memory isn't measured
	used   func() int64
	gate   *gate

	mu       sync.Mutex
	reads    int
	watching bool
	// relief is closed when memory is no longer full. nil: memory isn't full.
	relief atomic.Pointer[chan struct{}]
	// collecting is true while garbage is being collected. collected is true if garbage was collected since memory
	// became full and since the last read was ended.
	collecting, collected atomic.Bool
	shed                  atomic.Int64 // number of reads that were ended
}

// countRead counts a read that starts. The returned function must be called when the read ends.
func (p *pressure) countRead() (end func()) {
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

// watch measures the memory repeatedly until there are no more reads.
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
		p.measureMemory()
	}
}

// measureMemory measures the memory, and ends a read if memory is full.
func (p *pressure) measureMemory() {
	share := float64(p.used()) / float64(p.memory)
	p.setLevel(share)
	if share <= fullShare {
		return
	}
	p.gate.readers.dropSlowest()
	if p.collecting.Load() && share <= criticalShare {
		return
	}
	if p.gate.shedRead(p.collected.Load(), share > criticalShare) {
		p.shed.Add(1)
		p.collected.Store(false)
	}
	if !p.collected.Load() {
		p.startCollection()
	}
}

// setLevel makes reads wait or continue, according to the share of the memory that is in use.
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

// startCollection starts a garbage collection. It is called before a read is ended, because much of the memory may be
// garbage.
func (p *pressure) startCollection() {
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

// waitForRelief waits while memory is full. It returns the error of ctx if ctx ends first.
func (p *pressure) waitForRelief(ctx context.Context) error {
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

// Memory returns the memory in use by the process, in bytes, without free memory that Go keeps, and its limit. A limit
// of 0 means no limit.
func (e *Engine) Memory() (used, most int64) { return e.pressure.used(), e.pressure.memory }

// memoryInUse returns the memory in use by the process, in bytes: live objects, garbage, and memory outside Go's heap.
func memoryInUse() int64 {
	sample := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(sample)
	free := sample[2].Value.Uint64()
	return int64(max(sample[0].Value.Uint64()-sample[1].Value.Uint64(), anonymousMemory()) - free)
}

// maxSmallTime is the time after which a read that works or waits for another read's load becomes large, however little
// it holds. The memory of a small read is known in advance, except for the memory that the evaluator needs, which takes
// time to fill.
const maxSmallTime = time.Second

// garbageShare bounds when the only large read may be ended before a garbage collection: it must hold at least
// 1/garbageShare of the bytes that large reads may hold. If it holds less, most of the memory is garbage of earlier
// reads.
const garbageShare = 4

// shedRead ends one read: the newest read of the tenant with the most reads. It reports whether it ended a read. If
// large reads run, it chooses among them. Otherwise it chooses among the reads that wait for their turn as large reads,
// which hold less memory. If there are none, it chooses among the small reads.
//
// Unless the call is urgent, it ends no read while a read that it canceled still runs. Before garbage was collected, it
// doesn't end the only large read, unless the call is urgent and the read is large enough (see garbageShare). Waiting
// and small reads are ended only if no large read runs, garbage was collected, and no canceled read still runs. A small
// read is ended only if, in addition, no answers of large reads are held or the read has run for maxSmallTime.
func (g *gate) shedRead(collected, urgent bool) bool {
	answers := g.large.heldBytes() // If no large read runs, these are answers of reads that have ended.
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
		case answers == 0 || time.Since(e.read.began) >= maxSmallTime:
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
	r.ending = true // It was canceled but hasn't ended yet.
	r.cancel(cause)
	return true
}

// queryError returns the reason why a query ended with err: a shortage of memory, or err itself.
func queryError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if short := shortageError(ctx); short != nil {
		return short
	}
	return asQueryError(err)
}

// shortageError returns the error of a read that was ended because memory was short, or because too many large reads
// were waiting. It returns nil if neither happened.
func shortageError(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errPressure):
		return asUnavailable(errPressure)
	case errors.Is(cause, errTooLarge):
		return storage.PlainError(errTooLarge)
	case errors.Is(cause, ErrTooManyQueries):
		return asUnavailable(cause)
	}
	return nil
}

// ReadError returns the error to report for a read (see Engine.Enter) that ended with err. If memory was short, that is
// the reason, whatever err is.
func ReadError(ctx context.Context, err error) error { return asReadError(ctx, err) }

// asReadError is asPrometheus for the error of a read of series or labels. The read may have been ended because memory
// was short.
func asReadError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if short := shortageError(ctx); short != nil {
		return noteError(ctx, short)
	}
	return noteError(ctx, asPrometheus(err))
}
