package promql

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// fairQueue divides places fairly among tenants. A place is the permission to run one query. The waiting queries of
// each tenant form a queue, and a free place is given to these queues in rotation (round robin).
//
//	running  [ a a a b ]    places            order  ► a ─ b ─ c ─┐
//	waiting  a: ▪▪▪▪▪▪▪▪   b: ▪   c: ▪▪              └────────────┘
//
// A tenant without running queries may also take one of the extra places, so that it doesn't wait for a long query of
// another tenant. A running query that waits for memory releases its place during that time, see park.
type fairQueue struct {
	places, extra int
	// maxWaiting is the maximum number of waiters of all tenants.
	maxWaiting int
	// bytes bounds the bytes that queries hold, including the answers of queries that have finished (see addHeld).
	// While the held bytes reach the bound, no other query starts. For a tenant that holds nothing, the bound is 25%
	// higher. 0: no bound.
	bytes int64
	// isFull, if not nil, reports whether no query may start because too many bytes are held elsewhere. It is called
	// with mu held.
	isFull func() bool
	// onWait, if not nil, is called every waitInterval while a query waits.
	onWait func()

	mu sync.Mutex
	// tight is true while memory is short. During that time, a query starts only if no other query is running.
	tight   bool
	running int
	waiting int
	held    int64
	queues  map[string]*tenantQueue
	order   []*tenantQueue // queues with waiters, in the order in which they get places
}

// tenantQueue holds the waiting queries of one tenant, the number of its running queries, and the bytes that its
// running and finished queries hold.
type tenantQueue struct {
	name    string
	running int
	limit   int // maximum of running; 0: no limit
	held    int64
	waiters []*waiter
	load    any // of the query that started last
}

// waiter is a waiting query. A query of multiple tenants counts toward the limits of all these tenants, and waits in
// the queue of the first tenant.
type waiter struct {
	queues []*tenantQueue
	demand int64
	load   any        // the load that the query needs; nil: none
	passed int        // number of queries that started before it while it was the first of its queue
	ready  chan error // has a buffer of one
}

// share holds the limits of one tenant of a query.
type share struct {
	name string
	// running and waiting are the maximum numbers of the tenant's queries that run and wait at once. 0: no limit.
	running, waiting int
}

func newFairQueue(places, extra, most int) *fairQueue {
	return &fairQueue{places: places, extra: extra, maxWaiting: most, queues: map[string]*tenantQueue{}}
}

// errQueueFull is returned if a tenant's own queue is full.
var errQueueFull = errors.New("promql: too many queries of the tenant are waiting")

// enter waits for a place. Unless it returns an error, the caller must call leave with the same shares. It returns the
// context's error, errQueueFull if the queue of the first tenant is full, or ErrTooManyQueries.
func (f *fairQueue) enter(ctx context.Context, shares []share) error {
	return f.enterForLoad(ctx, shares, 0, nil)
}

// enterForLoad is enter for a query that is expected to hold demand bytes. The bytes count as held from the start of
// the query until the caller releases them with addHeld. The query waits until the bytes fit within the bound or no
// other query is running.
//
// load identifies a load into a cache that the query needs, or is nil. Of the waiting queries of a tenant, one with the
// same load as the query that started last starts next. Otherwise queries for many loads would evict each other's loads
// from the cache, and each would load again. The first query of a queue is passed by at most maxPassed others.
func (f *fairQueue) enterForLoad(ctx context.Context, shares []share, demand int64, load any) error {
	w, err := f.startOrQueue(shares, demand, load)
	if err != nil {
		return err
	}
	if w != nil {
		if err = f.waitForPlace(ctx, w); err != nil && ctx.Err() != nil {
			return err
		}
	}
	if err == nil && ctx.Err() != nil { // The query was admitted at the moment when its context ended.
		f.leave(shares)
		f.addHeld(shares, -demand)
		return ctx.Err()
	}
	return err
}

// waitInterval is how often fairQueue.onWait is called while a query waits.
const waitInterval = 250 * time.Millisecond

// waitForPlace returns the waiter's result, or the context's error.
func (f *fairQueue) waitForPlace(ctx context.Context, w *waiter) error {
	var tick <-chan time.Time // nil: never
	if f.onWait != nil {
		ticker := time.NewTicker(waitInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case err := <-w.ready:
			return err
		case <-ctx.Done():
			if f.removeWaiter(w) {
				return ctx.Err()
			}
			return <-w.ready
		case <-tick:
			f.onWait()
		}
	}
}

// removeWaiter removes a waiter from its queue. It returns false if the waiter has just received its result.
func (f *fairQueue) removeWaiter(w *waiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(w.ready) > 0 {
		return false
	}
	f.removeWaiterLocked(w)
	return true
}

// startOrQueue takes a place if one is free. Otherwise it queues the query and returns its waiter.
func (f *fairQueue) startOrQueue(shares []share, demand int64, load any) (*waiter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queues := make([]*tenantQueue, 0, stackTenants)
	for _, s := range shares {
		q := f.queueOf(s.name)
		q.limit = s.running
		queues = append(queues, q)
	}
	first := queues[0]
	if len(first.waiters) == 0 && f.mayRun(queues, demand) {
		f.takePlace(queues, demand)
		first.load = load
		return nil, nil
	}
	if most := shares[0].waiting; most > 0 && len(first.waiters) >= most {
		f.deleteIdleQueues(queues)
		return nil, errQueueFull
	}
	if f.waiting >= f.maxWaiting && !f.displaceWaiter(first) {
		f.deleteIdleQueues(queues)
		return nil, ErrTooManyQueries
	}
	w := &waiter{queues: slices.Clone(queues), demand: demand, load: load, ready: make(chan error, 1)}
	if len(first.waiters) == 0 {
		f.order = append(f.order, first)
	}
	first.waiters = append(first.waiters, w)
	f.waiting++
	return w, nil
}

// stackTenants is the max number of tenants of a query whose list of queues is allocated on the stack.
const stackTenants = 4

// queueOf returns the queue of a tenant. It creates the queue if there is none. The caller must hold mu.
func (f *fairQueue) queueOf(name string) *tenantQueue {
	q := f.queues[name]
	if q == nil {
		q = &tenantQueue{name: name}
		f.queues[name] = q
	}
	return q
}

// mayRun returns true if a query of these tenants may start now. The caller must hold mu.
func (f *fairQueue) mayRun(queues []*tenantQueue, demand int64) bool {
	idle, empty := true, true
	for _, q := range queues {
		if q.limit > 0 && q.running >= q.limit {
			return false
		}
		idle, empty = idle && q.running == 0, empty && q.held == 0
	}
	if f.isFull != nil && f.isFull() {
		return false
	}
	if f.bytes > 0 && f.held >= f.bytes && (!empty || f.held >= f.bytes+f.bytes/4) {
		return false
	}
	if f.running > 0 && (f.tight || demand > 0 && f.bytes > 0 && f.held+demand > f.bytes) {
		return false
	}
	return f.running < f.places || idle && f.running < f.places+f.extra
}

func (f *fairQueue) takePlace(queues []*tenantQueue, demand int64) {
	f.running++
	f.held += demand
	for _, q := range queues {
		q.running++
		q.held += demand
	}
}

// displaceWaiter rejects the last waiter of the longest queue to make room for a new waiter in queue of. So a tenant
// with many queries doesn't keep other tenants from waiting. It returns false if no queue is longer than queue of would
// be with the new waiter.
func (f *fairQueue) displaceWaiter(of *tenantQueue) bool {
	longest := of
	for _, q := range f.order {
		if len(q.waiters) > len(longest.waiters) {
			longest = q
		}
	}
	if len(longest.waiters) <= len(of.waiters)+1 {
		return false
	}
	w := longest.waiters[len(longest.waiters)-1]
	f.removeWaiterLocked(w)
	w.ready <- ErrTooManyQueries
	return true
}

// removeWaiterLocked removes a waiter from its queue, if the waiter is still queued. The caller must hold mu.
func (f *fairQueue) removeWaiterLocked(w *waiter) {
	q := w.queues[0]
	at := slices.Index(q.waiters, w)
	if at < 0 {
		return
	}
	q.waiters = slices.Delete(q.waiters, at, at+1)
	f.waiting--
	if len(q.waiters) == 0 {
		f.order = slices.DeleteFunc(f.order, func(o *tenantQueue) bool { return o == q })
	}
	f.deleteIdleQueues(w.queues)
}

// deleteIdleQueues deletes the given queues if their tenants have no query here and hold no bytes.
func (f *fairQueue) deleteIdleQueues(queues []*tenantQueue) {
	for _, q := range queues {
		if q.running == 0 && q.held == 0 && len(q.waiters) == 0 && !f.isReferenced(q) {
			delete(f.queues, q.name)
		}
	}
}

// isReferenced reports whether a waiter in another queue also counts toward the limits of queue q.
func (f *fairQueue) isReferenced(q *tenantQueue) bool {
	return slices.ContainsFunc(f.order, func(o *tenantQueue) bool {
		return slices.ContainsFunc(o.waiters, func(w *waiter) bool {
			return len(w.queues) > 1 && slices.Contains(w.queues, q)
		})
	})
}

// park makes a running query that has to wait release its place. The query still counts as running for its tenants. It
// must later call unpark, or leaveParked instead of leave.
func (f *fairQueue) park() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	for f.startNext() {
	}
}

// unpark reverts park without waiting for a place. Until other queries leave, more queries may run than there are
// places.
func (f *fairQueue) unpark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running++
}

// leaveParked is leave for a query that has called park.
func (f *fairQueue) leaveParked(shares []share) {
	f.unpark()
	f.leave(shares)
}

// leave releases a place and starts the next waiters.
func (f *fairQueue) leave(shares []share) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	queues := make([]*tenantQueue, 0, stackTenants)
	for _, s := range shares {
		if q := f.queues[s.name]; q != nil {
			q.running--
			queues = append(queues, q)
		}
	}
	for f.startNext() {
	}
	f.deleteIdleQueues(queues)
}

// addHeld adds to the bytes that tenants hold. The bytes also count after the query has released its place, until the
// caller adds the same number of negative bytes.
func (f *fairQueue) addHeld(shares []share, bytes int64) {
	if bytes == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held += bytes
	queues := make([]*tenantQueue, 0, stackTenants)
	for _, s := range shares {
		q := f.queueOf(s.name)
		q.held += bytes
		queues = append(queues, q)
	}
	for bytes < 0 && f.startNext() {
	}
	f.deleteIdleQueues(queues)
}

func (f *fairQueue) setTight(tight bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.tight
	f.tight = tight
	for was && !tight && f.startNext() {
	}
}

// startWaiters starts the waiters that may run. It must be called when isFull may have become false.
func (f *fairQueue) startWaiters() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.startNext() {
	}
}

// heldBytes returns the bytes that all tenants hold.
func (f *fairQueue) heldBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

// maxPassed is the maximum number of queries that start before the first query of their tenant's queue.
const maxPassed = 16

// nextWaiter returns the index of the waiter that starts next: the first one with the load of the query that started
// last, or the first one.
func (q *tenantQueue) nextWaiter() int {
	if q.load == nil || q.waiters[0].passed >= maxPassed {
		return 0
	}
	return max(0, slices.IndexFunc(q.waiters, func(w *waiter) bool { return w.load == q.load }))
}

// startNext starts a waiter that may run, and moves its tenant to the end of the order. It returns false if no waiter
// may run. The caller must hold mu.
func (f *fairQueue) startNext() bool {
	for i, q := range f.order {
		next := q.nextWaiter()
		w := q.waiters[next]
		if !f.mayRun(w.queues, w.demand) {
			continue
		}
		if next > 0 {
			q.waiters[0].passed++
		}
		q.waiters, q.load = slices.Delete(q.waiters, next, next+1), w.load
		f.waiting--
		f.order = slices.Delete(f.order, i, i+1)
		if len(q.waiters) > 0 {
			f.order = append(f.order, q)
		}
		f.takePlace(w.queues, w.demand)
		w.ready <- nil
		return true
	}
	return false
}

// queryCounts returns the numbers of a tenant's queries that run and wait.
func (f *fairQueue) queryCounts(name string) (running, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[name]
	if q == nil {
		return 0, 0
	}
	return q.running, len(q.waiters)
}
