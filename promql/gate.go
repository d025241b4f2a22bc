package promql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"sync"

	"github.com/cassia-db/cassia/storage/tenant"
)

// ErrTooManyQueries means that so many queries wait that another wouldn't be answered in time.
var ErrTooManyQueries = errors.New("promql: too many queries are waiting")

const (
	// waitingPerRunning bounds the queue: so many queries may wait for each one that may run.
	waitingPerRunning = 50
	// workersPerCore is how many batches of series are computed at once for each processor: enough that one that waits
	// for the engine leaves none idle, few enough that a tenant with one query gets its share of the time.
	workersPerCore = 2
)

// gate bounds the queries that run at once, and those that wait, shares both among tenants, and the planner's work, too.
// It implements Prometheus' promql.QueryTracker.
type gate struct {
	limiter *tenant.Limiter
	queries *fairQueue
	workers *fairQueue
	// parsing has the queries that are parsed. They don't wait for others' answers to be read.
	parsing *fairQueue
	texts   texts
	readers answerReaders
	large   largeAnswers

	mu      sync.Mutex
	entered map[int]entry // by what Insert returned
	last    int
}

// entry is a query that has a place.
type entry struct {
	shares []share
	stays  bool // until its stay ends
	queue  *fairQueue
}

func newGate(maxConcurrency int, unreadBytes int64, limiter *tenant.Limiter) *gate {
	places := max(1, maxConcurrency)
	g := &gate{
		limiter: limiter, entered: map[int]entry{},
		queries: newFairQueue(places, max(1, places/4), places*waitingPerRunning),
		workers: newFairQueue(workersPerCore*runtime.GOMAXPROCS(0), 0, math.MaxInt),
		parsing: newFairQueue(places, 0, math.MaxInt),
	}
	g.queries.bytes, g.texts.bytes = unreadBytes, unreadBytes
	g.queries.small = max(1, places/4)
	g.queries.onWait = g.dropUnread
	g.texts.onWait = g.dropUnread
	return g
}

// GetMaxConcurrent implements promql.QueryTracker.
func (g *gate) GetMaxConcurrent() int { return g.queries.places }

// Insert implements promql.QueryTracker: it waits for a place. It returns ErrTooManyQueries, a *tenant.LimitError of 429, or
// the context's error.
func (g *gate) Insert(ctx context.Context, _ string) (int, error) {
	shares := g.sharesOf(ctx)
	switch err := g.queries.enterAs(ctx, shares, isSmall(ctx)); {
	case errors.Is(err, errQueueFull):
		g.limiter.Refused(shares[0].name, tenant.KeyQueriesWaiting, 1)
		return notInserted, &tenant.LimitError{
			Tenant: shares[0].name, Limit: tenant.KeyQueriesWaiting, Status: http.StatusTooManyRequests,
			Detail: fmt.Sprintf("%d queries wait already, and as many run as may; ask for less at once, or ask the operator for more", shares[0].waiting),
		}
	case errors.Is(err, ErrTooManyQueries):
		return notInserted, fmt.Errorf("%w: %d already; see --query.max-concurrency", err, g.queries.most)
	case err != nil:
		return notInserted, err
	}
	e := entry{shares: shares, queue: g.queries}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := ctx.Value(heldPlaceKey{}).(*heldPlace); ok && s.place == 0 {
		s.place, e.stays = g.last+1, true
	}
	return g.add(e), nil
}

// parse waits until a query may be parsed. The caller must call Delete.
func (g *gate) parse(ctx context.Context) (int, error) {
	e := entry{shares: g.sharesOf(ctx), queue: g.parsing}
	for i := range e.shares {
		e.shares[i] = share{name: e.shares[i].name}
	}
	if err := g.parsing.enter(ctx, e.shares); err != nil {
		return notInserted, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.add(e), nil
}

// add needs the lock.
func (g *gate) add(e entry) int {
	g.last++
	g.entered[g.last] = e
	return g.last
}

// notInserted is what Insert returns beside an error.
const notInserted = -1

// Delete implements promql.QueryTracker. A query that stays, see gate.stay, keeps its place.
func (g *gate) Delete(inserted int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.entered[inserted]; ok && !e.stays {
		g.leave(inserted, e)
	}
}

// leave needs the lock.
func (g *gate) leave(inserted int, e entry) {
	delete(g.entered, inserted)
	e.queue.leave(e.shares)
}

// heldPlace is a place that outlasts Prometheus' evaluator, which gives it back before the answer is counted: whoever waited
// would begin in between.
type heldPlace struct {
	place int // 0: none was taken
}

type heldPlaceKey struct{}

// holdPlace returns a context whose query keeps the place that it takes until end is called.
func (g *gate) holdPlace(ctx context.Context) (_ context.Context, end func()) {
	s := &heldPlace{}
	return context.WithValue(ctx, heldPlaceKey{}, s), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if e, ok := g.entered[s.place]; ok {
			g.leave(s.place, e)
		}
	}
}

// Close implements promql.QueryTracker.
func (g *gate) Close() error { return nil }

// sharesOf returns what the tenants of a query may have.
func (g *gate) sharesOf(ctx context.Context) []share {
	names := tenant.All(ctx)
	shares := make([]share, len(names))
	for i, name := range names {
		limits := g.limiter.Of(name)
		shares[i] = share{name: name, running: atMost(limits.Queries), waiting: atMost(limits.QueriesWaiting)}
	}
	return shares
}

func atMost(n int64) int { return int(min(n, math.MaxInt32)) }

// work calls f while a worker's place is taken for the tenants of ctx.
func (g *gate) work(ctx context.Context, f func() error) error {
	if g == nil {
		return f()
	}
	names := tenant.All(ctx)
	shares := make([]share, len(names))
	for i, name := range names {
		shares[i].name = name
	}
	if err := g.workers.enter(ctx, shares); err != nil {
		return err
	}
	defer g.workers.leave(shares)
	return f()
}
