package promql

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Origin describes the client that sent a query. Fields that the request doesn't contain are empty.
type Origin struct {
	Address   string `json:"address,omitempty"`
	UserAgent string `json:"userAgent,omitempty"`
	RequestID string `json:"requestId,omitempty"`
}

type originKey struct{}

// Into returns a context whose queries have the origin o.
func (o Origin) Into(ctx context.Context) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

func originOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin) // The zero value if ctx has no origin.
	return o
}

// ActiveQuery is a query that runs or waits for its turn.
type ActiveQuery struct {
	// ID is random and can't be guessed.
	ID string `json:"id"`
	// Tenants are the tenants whose series the query reads.
	Tenants []string  `json:"tenants"`
	Query   string    `json:"query"`
	Since   time.Time `json:"since"`
	// Start, End and Step are the range of the query. Step is in seconds, and 0 for an instant query.
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
	Step   float64   `json:"stepSeconds"`
	Origin Origin    `json:"origin"`

	cancel context.CancelFunc
}

// activeQueries are the active queries of an Engine. Their number is bounded by the number of open requests.
type activeQueries struct {
	mu   sync.Mutex
	byID map[string]*ActiveQuery
}

// startQuery adds a query. The returned context is canceled when the query is canceled. The caller must call end once
// the query has ended.
func (a *activeQueries) startQuery(
	ctx context.Context, text string, stmt parser.Statement,
) (out context.Context, q *ActiveQuery, end func()) {
	out, cancel := context.WithCancel(ctx)
	q = &ActiveQuery{
		ID: rand.Text(), Tenants: tenant.NamesFromContext(ctx), Query: text,
		Since: time.Now().UTC(), Origin: originOf(ctx),
		cancel: cancel,
	}
	if e, ok := stmt.(*parser.EvalStmt); ok {
		q.Start, q.End, q.Step = e.Start.UTC(), e.End.UTC(), e.Interval.Seconds()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID == nil {
		a.byID = map[string]*ActiveQuery{}
	}
	a.byID[q.ID] = q
	return out, q, func() {
		a.mu.Lock()
		delete(a.byID, q.ID)
		a.mu.Unlock()
		cancel()
	}
}

// ActiveQueries returns the running and waiting queries that read only series of the given tenants, oldest first.
func (e *Engine) ActiveQueries(tenants []string) []ActiveQuery {
	e.active.mu.Lock()
	defer e.active.mu.Unlock()
	out := []ActiveQuery{}
	for _, q := range e.active.byID {
		if q.readsOnly(tenants) {
			out = append(out, *q)
		}
	}
	slices.SortFunc(out, func(a, b ActiveQuery) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// CancelQuery cancels the query with the given id if it reads only series of the given tenants. It returns false if
// there is no such query.
func (e *Engine) CancelQuery(id string, tenants []string) bool {
	e.active.mu.Lock()
	defer e.active.mu.Unlock()
	q := e.active.byID[id]
	if q == nil || !q.readsOnly(tenants) {
		return false
	}
	q.cancel()
	return true
}

// readsOnly reports whether all tenants of the query are among the given tenants.
func (q *ActiveQuery) readsOnly(tenants []string) bool {
	return isSubset(q.Tenants, tenants)
}
