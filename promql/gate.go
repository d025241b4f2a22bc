package promql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

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
//
//	queries: --query.max-concurrency places        large: as many, and as memory allows
//	[ small, before it has found what it reads ]──►[ holds more than largeBytes, see read.Grow ]
//
// Small reads have a part of the memory that only they may take: largeBytes for each place, and unreadBytes for their answers. They wait for each
// other only, and memory that large ones take ends large ones.
type gate struct {
	limiter *tenant.Limiter
	queries *fairQueue
	large   *fairQueue
	workers *fairQueue
	// parsing has the queries that are parsed, which don't wait for others' answers to be read.
	parsing *fairQueue
	readers answerReaders
	// unreadBytes is Options.UnreadBytes, and unread the bytes of all answers that clients haven't read.
	unreadBytes int64
	unread      atomic.Int64
	// largeBytes is how much memory a read holds that is large; 0: none is.
	largeBytes int64
	pressure   *pressure

	mu      sync.Mutex
	entered map[int]entry // by what Insert returned
	last    int
	// usual is the size of recent large reads, a moving average, bytes.
	usual int64
}

// entry is a query that has a place.
type entry struct {
	shares []share
	queue  *fairQueue
	read   *read // nil: it keeps its place until Delete
}

const (
	// smallReads is how many large reads may wait for their turn: together they hold an eighth of the memory at most.
	smallReads = 128
	// largeShare is the share of the memory that is counted for large reads that run at once, unless one alone needs more.
	largeShare = 0.25
	// usualReads is over how many large reads their size is averaged. Before the first one, it is a quarter of what they may hold.
	usualReads = 4
	// largeOfUnread is how many reads that aren't large may be answered before their unread answers keep others waiting.
	largeOfUnread = 16
)

func newGate(o Options) *gate {
	places := max(1, o.MaxConcurrency)
	g := &gate{
		limiter: o.Limiter, entered: map[int]entry{},
		queries:    newFairQueue(places, max(1, places/4), places*waitingPerRunning),
		large:      newFairQueue(places, 0, smallReads),
		workers:    newFairQueue(workersPerCore*runtime.GOMAXPROCS(0), 0, math.MaxInt),
		parsing:    newFairQueue(places, 0, math.MaxInt),
		largeBytes: o.Memory / 8 / smallReads, unreadBytes: o.UnreadBytes,
	}
	g.queries.onWait, g.large.onWait = g.dropUnread, g.dropUnread
	g.queries.bytes = o.UnreadBytes
	if g.largeBytes > 0 {
		g.large.full = g.isFull
		if o.UnreadBytes > 0 {
			g.largeBytes = min(g.largeBytes, o.UnreadBytes/largeOfUnread)
		}
		g.large.bytes = int64(largeShare * float64(o.Memory))
		g.usual = g.large.bytes / 4
	}
	return g
}

// GetMaxConcurrent implements promql.QueryTracker.
func (g *gate) GetMaxConcurrent() int { return g.queries.places }

// Insert implements promql.QueryTracker: it waits for a place. It returns ErrTooManyQueries, a *tenant.LimitError of 429, or
// the context's error.
func (g *gate) Insert(ctx context.Context, _ string) (int, error) {
	shares := g.sharesOf(ctx)
	switch err := g.queries.enter(ctx, shares); {
	case errors.Is(err, errQueueFull):
		g.limiter.Refused(shares[0].name, tenant.KeyQueriesWaiting, 1)
		return notInserted, &tenant.LimitError{
			Tenant: shares[0].name, Limit: tenant.KeyQueriesWaiting, Status: http.StatusTooManyRequests,
			Detail: fmt.Sprintf("%d queries are waiting, and the limit of running queries is reached; send fewer queries at once, or ask the operator to raise the limit", shares[0].waiting),
		}
	case errors.Is(err, ErrTooManyQueries):
		return notInserted, fmt.Errorf("%w: %d; see --query.max-concurrency", err, g.queries.most)
	case err != nil:
		return notInserted, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := entry{shares: shares, queue: g.queries}
	if r := readOf(ctx); r != nil && r.place == 0 {
		r.place, e.read = g.last+1, r
		r.entered.Store(time.Now().UnixNano())
	}
	return g.add(e), nil
}

// parse waits until a query may be parsed. The caller must call Delete.
func (g *gate) parse(ctx context.Context) (int, error) {
	e := entry{shares: unlimited(tenant.All(ctx)), queue: g.parsing}
	if err := g.parsing.enter(ctx, e.shares); err != nil {
		return notInserted, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.add(e), nil
}

// usualSize returns what a large read holds in the end, as far as recent ones tell, bytes. It is counted from a read's start: those that
// start together would hold more than there is before they had been counted.
func (g *gate) usualSize() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.usual
}

// noteSize notes what a large read held in the end. Reads that are large because they took long, and held little, leave the average as it is: many
// of them would let too many of those that hold much start together.
func (g *gate) noteSize(bytes int64) {
	if bytes <= g.largeBytes {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.usual += (bytes - g.usual) / usualReads
}

// add requires the lock.
func (g *gate) add(e entry) int {
	g.last++
	g.entered[g.last] = e
	return g.last
}

// notInserted is what Insert returns beside an error.
const notInserted = -1

// Delete implements promql.QueryTracker. A read keeps its place until it leaves.
func (g *gate) Delete(inserted int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.entered[inserted]; ok && e.read == nil {
		delete(g.entered, inserted)
		e.queue.leave(e.shares)
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

// unlimited returns shares of tenants whose own limits don't apply.
func unlimited(names []string) []share {
	shares := make([]share, len(names))
	for i, name := range names {
		shares[i].name = name
	}
	return shares
}

func atMost(n int64) int { return int(min(n, math.MaxInt32)) }

// work calls f while a worker's place is taken for the tenants of ctx.
func (g *gate) work(ctx context.Context, f func() error) error {
	if g == nil {
		return f()
	}
	shares := unlimited(tenant.All(ctx))
	if err := g.workers.enter(ctx, shares); err != nil {
		return err
	}
	defer g.workers.leave(shares)
	return f()
}
