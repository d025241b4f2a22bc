package promql

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// fairQueue shares a number of places fairly among tenants. Each tenant that waits has a queue of its own, and a free place
// goes to these queues in rotation (round robin).
//
//	running  [ a a a b ]    places            order  ► a ─ b ─ c ─┐
//	waiting  a: ▪▪▪▪▪▪▪▪   b: ▪   c: ▪▪              └────────────┘
//
// A tenant that has nothing running may also take one of the extra places, so that it doesn't wait until a long query of
// another tenant ends. A query that waits for something else meanwhile gives its place to others, see park.
type fairQueue struct {
	places, extra int
	// most bounds the number of waiters of all tenants.
	most int
	// bytes bounds the bytes that are held by queries that have run (see hold): at or above it no other query starts. For a
	// tenant that holds nothing the bound is a quarter higher. 0 means that there is no bound.
	bytes int64
	// full reports whether no query may start because of bytes held elsewhere; may be nil. Its lock is taken after this one.
	full func() bool
	// onWait is called every waitInterval while a query waits; may be nil.
	onWait func()

	mu sync.Mutex
	// tight is set while memory is short: then a query starts only if none is running.
	tight   bool
	running int
	waiting int
	held    int64
	queues  map[string]*tenantQueue
	order   []*tenantQueue // queues with waiters, in the order in which they get places
}

// tenantQueue holds the waiters of one tenant, and what it uses.
type tenantQueue struct {
	name    string
	running int
	limit   int // of running; 0: none
	held    int64
	waiters []*waiter
}

// waiter is a query that waits. A query of several tenants counts in all of their queues, and waits in the first.
type waiter struct {
	queues []*tenantQueue
	demand int64
	ready  chan error // has room for one
}

// share is what one tenant may use of the places.
type share struct {
	name string
	// running and waiting bound the number of its queries that run and wait at once; 0 means that there is no bound.
	running, waiting int
}

func newFairQueue(places, extra, most int) *fairQueue {
	return &fairQueue{places: places, extra: extra, most: most, queues: map[string]*tenantQueue{}}
}

// errQueueFull is returned if a tenant's own queue is full.
var errQueueFull = errors.New("promql: too many queries of the tenant are waiting")

// enter waits for a place. Unless it returns an error, the caller must call leave with the same shares. It returns the
// context's error, errQueueFull if the queue of the first tenant is full, or ErrTooManyQueries.
func (f *fairQueue) enter(ctx context.Context, shares []share) error {
	return f.enterWith(ctx, shares, 0)
}

// enterWith is enter for a query that is about to hold demand bytes, which count as held from its start until the caller releases
// them: unless nothing else runs, it waits until they fit in.
func (f *fairQueue) enterWith(ctx context.Context, shares []share, demand int64) error {
	w, err := f.start(shares, demand)
	if err != nil {
		return err
	}
	if w != nil {
		if err = f.await(ctx, w); err != nil && ctx.Err() != nil {
			return err
		}
	}
	if err == nil && ctx.Err() != nil { // It was given a place when nobody waited for its answer any more.
		f.leave(shares)
		f.hold(shares, -demand)
		return ctx.Err()
	}
	return err
}

// waitInterval is how often fairQueue.onWait is called while a query waits.
const waitInterval = 250 * time.Millisecond

// await returns what the waiter was answered, or the context's error.
func (f *fairQueue) await(ctx context.Context, w *waiter) error {
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
			if f.dropped(w) {
				return ctx.Err()
			}
			return <-w.ready
		case <-tick:
			f.onWait()
		}
	}
}

// dropped takes a waiter out of its queue; false: it was answered just now.
func (f *fairQueue) dropped(w *waiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(w.ready) > 0 {
		return false
	}
	f.drop(w)
	return true
}

// start takes a place if one is free; otherwise it returns the waiter that it has queued.
func (f *fairQueue) start(shares []share, demand int64) (*waiter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queues := make([]*tenantQueue, 0, usualTenants)
	for _, s := range shares {
		q := f.queueOf(s.name)
		q.limit = s.running
		queues = append(queues, q)
	}
	first := queues[0]
	if len(first.waiters) == 0 && f.mayRun(queues, demand) {
		f.run(queues, demand)
		return nil, nil
	}
	if most := shares[0].waiting; most > 0 && len(first.waiters) >= most {
		f.tidy(queues)
		return nil, errQueueFull
	}
	if f.waiting >= f.most && !f.displace(first) {
		f.tidy(queues)
		return nil, ErrTooManyQueries
	}
	w := &waiter{queues: slices.Clone(queues), demand: demand, ready: make(chan error, 1)}
	if len(first.waiters) == 0 {
		f.order = append(f.order, first)
	}
	first.waiters = append(first.waiters, w)
	f.waiting++
	return w, nil
}

// usualTenants is the number of tenants of one query up to which lists of their queues stay on the stack.
const usualTenants = 4

// queueOf returns the queue of a tenant, which is new if it has no query here and holds nothing.
func (f *fairQueue) queueOf(name string) *tenantQueue {
	q := f.queues[name]
	if q == nil {
		q = &tenantQueue{name: name}
		f.queues[name] = q
	}
	return q
}

// mayRun returns true if a query of these tenants may start now.
func (f *fairQueue) mayRun(queues []*tenantQueue, demand int64) bool {
	idle, empty := true, true
	for _, q := range queues {
		if q.limit > 0 && q.running >= q.limit {
			return false
		}
		idle, empty = idle && q.running == 0, empty && q.held == 0
	}
	if f.full != nil && f.full() {
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

func (f *fairQueue) run(queues []*tenantQueue, demand int64) {
	f.running++
	f.held += demand
	for _, q := range queues {
		q.running++
		q.held += demand
	}
}

// displace rejects the last waiter of the longest queue in favour of a tenant whose queue is shorter, so that tenants with
// many queries don't keep others from waiting. It returns false if no queue is longer.
func (f *fairQueue) displace(of *tenantQueue) bool {
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
	f.drop(w)
	w.ready <- ErrTooManyQueries
	return true
}

// drop removes a waiter from its queue.
func (f *fairQueue) drop(w *waiter) {
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
	f.tidy(w.queues)
}

// tidy deletes the queues of tenants that have no query here and hold nothing.
func (f *fairQueue) tidy(queues []*tenantQueue) {
	for _, q := range queues {
		if q.running == 0 && q.held == 0 && len(q.waiters) == 0 && !f.named(q) {
			delete(f.queues, q.name)
		}
	}
}

// named returns true if a waiter of another queue counts in this one, too.
func (f *fairQueue) named(q *tenantQueue) bool {
	return slices.ContainsFunc(f.order, func(o *tenantQueue) bool {
		return slices.ContainsFunc(o.waiters, func(w *waiter) bool { return len(w.queues) > 1 && slices.Contains(w.queues, q) })
	})
}

// park gives the place of a query to others while it still counts as running for its tenants. The caller must call leaveParked instead of
// leave then.
func (f *fairQueue) park() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	for f.next() {
	}
}

// unpark is the opposite of park: for a while more may run than there are places.
func (f *fairQueue) unpark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running++
}

// leaveParked is leave after park.
func (f *fairQueue) leaveParked(shares []share) {
	f.unpark()
	f.leave(shares)
}

// leave gives a place back, and starts the next waiters.
func (f *fairQueue) leave(shares []share) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	queues := make([]*tenantQueue, 0, usualTenants)
	for _, s := range shares {
		if q := f.queues[s.name]; q != nil {
			q.running--
			queues = append(queues, q)
		}
	}
	for f.next() {
	}
	f.tidy(queues)
}

// hold adds to the bytes that tenants hold after their queries have given back their places. Negative bytes release them.
func (f *fairQueue) hold(shares []share, bytes int64) {
	if bytes == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held += bytes
	queues := make([]*tenantQueue, 0, usualTenants)
	for _, s := range shares {
		q := f.queueOf(s.name)
		q.held += bytes
		queues = append(queues, q)
	}
	for bytes < 0 && f.next() {
	}
	f.tidy(queues)
}

func (f *fairQueue) setTight(tight bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.tight
	f.tight = tight
	for was && !tight && f.next() {
	}
}

// wake starts the waiters that may run, after full has changed.
func (f *fairQueue) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.next() {
	}
}

// holding returns the bytes that all tenants hold.
func (f *fairQueue) holding() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

// next starts the first waiter that may run, and moves its tenant to the end of the order. It returns false if there is none.
func (f *fairQueue) next() bool {
	for i, q := range f.order {
		w := q.waiters[0]
		if !f.mayRun(w.queues, w.demand) {
			continue
		}
		q.waiters = slices.Delete(q.waiters, 0, 1)
		f.waiting--
		f.order = slices.Delete(f.order, i, i+1)
		if len(q.waiters) > 0 {
			f.order = append(f.order, q)
		}
		f.run(w.queues, w.demand)
		w.ready <- nil
		return true
	}
	return false
}

// state returns the numbers of a tenant's queries that run and wait.
func (f *fairQueue) state(name string) (running, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[name]
	if q == nil {
		return 0, 0
	}
	return q.running, len(q.waiters)
}
