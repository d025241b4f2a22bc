package promql

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// turns shares places among tenants: whoever waits gets the next free one when the tenants that wait have had theirs
// before, one after the other.
//
//	running  [ a a a b ]    places            order  ► a ─ b ─ c ─┐
//	waiting  a: ▪▪▪▪▪▪▪▪   b: ▪   c: ▪▪              └────────────┘
//
// A tenant that has nothing running may start one beyond the places, as long as there are extra ones, so that it
// doesn't wait until a long query of another ends.
type turns struct {
	places, extra int
	// most bounds those that wait, of all tenants.
	most int
	// bytes bounds what those that have run hold; above it others wait. A tenant that holds nothing may have a quarter more,
	// as it may of the places. 0: nothing does.
	bytes int64

	mu sync.Mutex
	// tight says that memory is short: one runs, and others wait until some have ended.
	tight   bool
	running int
	waiting int
	held    int64
	lines   map[string]*line
	order   []*line // those with waiters; the first is asked first
}

// line is a tenant's.
type line struct {
	name    string
	running int
	limit   int // of running; 0: none
	held    int64
	queue   []*waiter
}

// waiter is a query that waits. A query of several tenants takes part in all of their lines, and waits in the first.
type waiter struct {
	lines []*line
	ready chan error // has room for one
}

// share is what one tenant may have of the places.
type share struct {
	name string
	// running and waiting bound how many it has there at once; 0: nothing does.
	running, waiting int
}

func newTurns(places, extra, most int) *turns {
	return &turns{places: places, extra: extra, most: most, lines: map[string]*line{}}
}

// errLineFull says that a tenant's own queue is full.
var errLineFull = errors.New("promql: too many queries of the tenant are waiting")

// enter waits for a place. The caller calls leave with the same shares, unless there is an error: the context's, errLineFull,
// which is about the first tenant, or ErrTooManyQueries.
func (t *turns) enter(ctx context.Context, shares []share) error {
	w, err := t.start(shares)
	if err != nil || w == nil {
		return err
	}
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
	}
	t.mu.Lock()
	select {
	case err := <-w.ready: // It was given a place just now.
		t.mu.Unlock()
		if err == nil {
			t.leave(shares)
		}
	default:
		t.drop(w)
		t.mu.Unlock()
	}
	return ctx.Err()
}

// start takes a place if one is free, and otherwise returns what waits for it.
func (t *turns) start(shares []share) (*waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := make([]*line, len(shares))
	for i, s := range shares {
		l := t.lines[s.name]
		if l == nil {
			l = &line{name: s.name}
			t.lines[s.name] = l
		}
		l.limit, lines[i] = s.running, l
	}
	first := lines[0]
	if len(first.queue) == 0 && t.mayRun(lines) {
		t.run(lines)
		return nil, nil
	}
	if most := shares[0].waiting; most > 0 && len(first.queue) >= most {
		t.tidy(lines)
		return nil, errLineFull
	}
	if t.waiting >= t.most && !t.displace(first) {
		t.tidy(lines)
		return nil, ErrTooManyQueries
	}
	w := &waiter{lines: lines, ready: make(chan error, 1)}
	if len(first.queue) == 0 {
		t.order = append(t.order, first)
	}
	first.queue = append(first.queue, w)
	t.waiting++
	return w, nil
}

// mayRun says whether a query of these tenants may run now.
func (t *turns) mayRun(lines []*line) bool {
	idle, empty := true, true
	for _, l := range lines {
		if l.limit > 0 && l.running >= l.limit {
			return false
		}
		idle, empty = idle && l.running == 0, empty && l.held == 0
	}
	if t.bytes > 0 && t.held >= t.bytes && (!empty || t.held >= t.bytes+t.bytes/4) {
		return false
	}
	if t.tight && t.running > 0 {
		return false
	}
	return t.running < t.places || idle && t.running < t.places+t.extra
}

func (t *turns) run(lines []*line) {
	t.running++
	for _, l := range lines {
		l.running++
	}
}

// displace sends away the last waiter of the longest queue, for one whose queue is shorter: tenants that ask much don't
// keep others from waiting.
func (t *turns) displace(of *line) bool {
	longest := of
	for _, l := range t.order {
		if len(l.queue) > len(longest.queue) {
			longest = l
		}
	}
	if len(longest.queue) <= len(of.queue)+1 {
		return false
	}
	w := longest.queue[len(longest.queue)-1]
	t.drop(w)
	w.ready <- ErrTooManyQueries
	return true
}

// drop takes a waiter out of its queue.
func (t *turns) drop(w *waiter) {
	l := w.lines[0]
	at := slices.Index(l.queue, w)
	if at < 0 {
		return
	}
	l.queue = slices.Delete(l.queue, at, at+1)
	t.waiting--
	if len(l.queue) == 0 {
		t.order = slices.DeleteFunc(t.order, func(o *line) bool { return o == l })
	}
	t.tidy(w.lines)
}

// tidy forgets tenants that have nothing here.
func (t *turns) tidy(lines []*line) {
	for _, l := range lines {
		if l.running == 0 && l.held == 0 && len(l.queue) == 0 && !t.named(l) {
			delete(t.lines, l.name)
		}
	}
}

// named says whether one that waits in another line takes part in this one, too.
func (t *turns) named(l *line) bool {
	return slices.ContainsFunc(t.order, func(o *line) bool {
		return slices.ContainsFunc(o.queue, func(w *waiter) bool { return len(w.lines) > 1 && slices.Contains(w.lines, l) })
	})
}

// leave gives a place back, to who is next.
func (t *turns) leave(shares []share) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	lines := make([]*line, 0, len(shares))
	for _, s := range shares {
		if l := t.lines[s.name]; l != nil {
			l.running--
			lines = append(lines, l)
		}
	}
	for t.next() {
	}
	t.tidy(lines)
}

// hold counts bytes that tenants hold beyond their place; fewer than 0 are given back.
func (t *turns) hold(shares []share, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held += bytes
	lines := make([]*line, len(shares))
	for i, s := range shares {
		l := t.lines[s.name]
		if l == nil {
			l = &line{name: s.name}
			t.lines[s.name] = l
		}
		l.held += bytes
		lines[i] = l
	}
	for bytes < 0 && t.next() {
	}
	t.tidy(lines)
}

func (t *turns) setTight(tight bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.tight
	t.tight = tight
	for was && !tight && t.next() {
	}
}

// holding returns the bytes that are held.
func (t *turns) holding() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}

// next lets the first that may run do so, and puts its tenant at the end of the order.
func (t *turns) next() bool {
	for i, l := range t.order {
		w := l.queue[0]
		if !t.mayRun(w.lines) {
			continue
		}
		l.queue = slices.Delete(l.queue, 0, 1)
		t.waiting--
		t.order = slices.Delete(t.order, i, i+1)
		if len(l.queue) > 0 {
			t.order = append(t.order, l)
		}
		t.run(w.lines)
		w.ready <- nil
		return true
	}
	return false
}

// state returns how many of a tenant run and wait.
func (t *turns) state(name string) (running, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[name]
	if l == nil {
		return 0, 0
	}
	return l.running, len(l.queue)
}
