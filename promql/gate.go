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

// ErrTooManyQueries means that the queue of waiting queries is full.
var ErrTooManyQueries = errors.New("promql: too many queries are waiting")

const (
	// waitingPerRunning bounds the queue: the number of queries that may wait for each query that may run.
	waitingPerRunning = 50
	// workersPerCore is the number of batches of series that are computed at once per processor. It is large enough to
	// keep processors busy while some batches wait for the storage engine, and small enough that a tenant with one
	// query gets its share of the time.
	workersPerCore = 2
)

// gate bounds the number of queries that run and wait. It divides the places to run and to wait, and the planner's
// workers, fairly among tenants. It implements Prometheus' promql.QueryTracker.
//
//	queries: --query.max-concurrency places        large: as many, and as memory allows
//	[ small, before it has found what it reads ]──►[ holds more than largeBytes, see read.Grow ]
//
// Part of the memory is reserved for small reads: largeBytes per place, and unreadBytes for their answers. Small reads
// wait only for each other. Large reads that use the reserved memory are ended.
type gate struct {
	limiter *tenant.Limiter
	queries *fairQueue
	large   *fairQueue
	workers *fairQueue
	// parsing is the queue for parsing queries. Queries in it don't wait for unread answers.
	parsing *fairQueue
	readers answerReaders
	// unreadBytes is Options.UnreadBytes. unread is the number of bytes of all answers that clients haven't read.
	unreadBytes int64
	unread      atomic.Int64
	// largeBytes is the memory above which a read is large, in bytes. 0: no read is large.
	largeBytes int64
	pressure   *pressure

	mu      sync.Mutex
	entered map[int]entry // by the id that Insert returned
	last    int
	// averageLarge is the moving average of the size of recent large reads, in bytes.
	averageLarge int64
}

// entry is a query that has a place.
type entry struct {
	shares []share
	queue  *fairQueue
	read   *read // nil: the query keeps its place until Delete
}

const (
	// maxWaitingReads is the maximum number of large reads that wait for their turn. Together they hold at most an
	// eighth of the memory.
	maxWaitingReads = 128
	// largeShare is the share of the memory that large reads running at once may use, unless a single one needs more.
	largeShare = 0.25
	// averagedReads is the number of large reads over which their size is averaged. Before the first large read has
	// ended, the average is a quarter of the memory that large reads may hold.
	averagedReads = 4
	// minUnreadAnswers is the minimum number of unread answers of small reads at which other small reads wait.
	minUnreadAnswers = 16
)

func newGate(o Options) *gate {
	places := max(1, o.MaxConcurrency)
	g := &gate{
		limiter: o.Limiter, entered: map[int]entry{},
		queries:    newFairQueue(places, max(1, places/4), places*waitingPerRunning),
		large:      newFairQueue(places, 0, maxWaitingReads),
		workers:    newFairQueue(workersPerCore*runtime.GOMAXPROCS(0), 0, math.MaxInt),
		parsing:    newFairQueue(places, 0, math.MaxInt),
		largeBytes: o.Memory / 8 / maxWaitingReads, unreadBytes: o.UnreadBytes,
	}
	g.queries.onWait, g.large.onWait = g.dropUnread, g.dropUnread
	g.queries.bytes = o.UnreadBytes
	if g.largeBytes > 0 {
		g.large.isFull = g.isFull
		if o.UnreadBytes > 0 {
			g.largeBytes = min(g.largeBytes, o.UnreadBytes/minUnreadAnswers)
		}
		g.large.bytes = int64(largeShare * float64(o.Memory))
		g.averageLarge = g.large.bytes / 4
	}
	return g
}

// GetMaxConcurrent implements promql.QueryTracker.
func (g *gate) GetMaxConcurrent() int { return g.queries.places }

// Insert implements promql.QueryTracker: it waits for a place. It returns ErrTooManyQueries, a *tenant.LimitError with
// status 429, or the context's error.
func (g *gate) Insert(ctx context.Context, _ string) (int, error) {
	shares := g.sharesOf(ctx)
	switch err := g.queries.enter(ctx, shares); {
	case errors.Is(err, errQueueFull):
		g.limiter.CountRejected(shares[0].name, tenant.KeyQueriesWaiting, 1)
		return notInserted, &tenant.LimitError{
			Tenant: shares[0].name, Limit: tenant.KeyQueriesWaiting, Status: http.StatusTooManyRequests,
			Detail: fmt.Sprintf(
				"%d queries are waiting, and the limit of running queries is reached; send fewer queries at once, or ask the operator to raise the limit",
				shares[0].waiting,
			),
		}
	case errors.Is(err, ErrTooManyQueries):
		return notInserted, fmt.Errorf("%w: %d; see --query.max-concurrency", err, g.queries.maxWaiting)
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
	return g.addEntry(e), nil
}

// enterParsing waits until a query may be parsed. The caller must call Delete.
func (g *gate) enterParsing(ctx context.Context) (int, error) {
	e := entry{shares: unlimitedShares(tenant.NamesFromContext(ctx)), queue: g.parsing}
	if err := g.parsing.enter(ctx, e.shares); err != nil {
		return notInserted, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addEntry(e), nil
}

// averageLargeSize returns the estimated final size of a large read, in bytes, from recent large reads. The estimate is
// reserved when a large read starts. Otherwise reads that start together could exceed the memory before their actual
// sizes are counted.
func (g *gate) averageLargeSize() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.averageLarge
}

// recordLargeSize records the final size of a large read in the average. Reads that hold little, but are large because
// they took long, are left out. They would lower the average, and too many reads that hold much memory would start
// together.
func (g *gate) recordLargeSize(bytes int64) {
	if bytes <= g.largeBytes {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.averageLarge += (bytes - g.averageLarge) / averagedReads
}

// addEntry registers an entry and returns its id. The caller must hold mu.
func (g *gate) addEntry(e entry) int {
	g.last++
	g.entered[g.last] = e
	return g.last
}

// notInserted is the id that Insert returns with an error.
const notInserted = -1

// Delete implements promql.QueryTracker. For a read it does nothing, because read.leave releases the place.
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

// sharesOf returns the shares of a query's tenants.
func (g *gate) sharesOf(ctx context.Context) []share {
	names := tenant.NamesFromContext(ctx)
	shares := make([]share, len(names))
	for i, name := range names {
		limits := g.limiter.LimitsOf(name)
		shares[i] = share{name: name, running: clampToInt32(limits.Queries),
			waiting: clampToInt32(limits.QueriesWaiting)}
	}
	return shares
}

// unlimitedShares returns shares of tenants whose own limits don't apply.
func unlimitedShares(names []string) []share {
	shares := make([]share, len(names))
	for i, name := range names {
		shares[i].name = name
	}
	return shares
}

func clampToInt32(n int64) int { return int(min(n, math.MaxInt32)) }

// withWorker calls f while holding a worker's place for the tenants of ctx.
func (g *gate) withWorker(ctx context.Context, f func() error) error {
	if g == nil {
		return f()
	}
	shares := unlimitedShares(tenant.NamesFromContext(ctx))
	if err := g.workers.enter(ctx, shares); err != nil {
		return err
	}
	defer g.workers.leave(shares)
	return f()
}
