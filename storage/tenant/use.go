package tenant

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Use is the usage of one tenant's limits by one query. Its methods may be called concurrently. Methods that return an
// error return a *LimitError with status 422 when a limit is reached. A nil Use has no limits.
type Use struct {
	limiter                *Limiter
	tenant                 string
	limits                 Limits
	series, samples, bytes atomic.Int64
	counted                atomic.Bool
}

type usesKey struct{}

// uses are the Uses of one query, by tenant.
type uses struct {
	mu  sync.Mutex
	all map[string]*Use
}

// Begin returns a context whose reads count as one query.
func (l *Limiter) Begin(ctx context.Context) context.Context {
	if l == nil {
		return ctx
	}
	return context.WithValue(ctx, usesKey{}, &uses{all: map[string]*Use{}})
}

// Use returns the usage of a tenant's limits by the query of ctx. Without a context from Begin, it returns a new Use.
func (l *Limiter) Use(ctx context.Context, name string) *Use {
	if l == nil {
		return nil
	}
	u, ok := ctx.Value(usesKey{}).(*uses)
	if !ok {
		return &Use{limiter: l, tenant: name, limits: l.LimitsOf(name)}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.all[name]
	if one == nil {
		one = &Use{limiter: l, tenant: name, limits: l.LimitsOf(name)}
		u.all[name] = one
	}
	return one
}

// AddSeries adds n series that the query has found.
func (u *Use) AddSeries(n int) error {
	if u == nil || u.limits.QuerySeries == 0 || u.series.Add(int64(n)) <= u.limits.QuerySeries {
		return nil
	}
	return u.rejectQuery(KeyQuerySeries, "it selects more than %d series; select fewer series", u.limits.QuerySeries)
}

// AddSamples adds n samples or buckets that the query has read.
func (u *Use) AddSamples(n int) error {
	if u == nil || u.limits.QuerySamples == 0 || u.samples.Add(int64(n)) <= u.limits.QuerySamples {
		return nil
	}
	return u.rejectQuery(KeyQuerySamples, "it reads more than %d samples; query a shorter range or fewer series",
		u.limits.QuerySamples)
}

// AddBytes adds n bytes of labels and encoded samples that the query has read.
func (u *Use) AddBytes(n int) error {
	if u == nil || u.limits.QueryBytes == 0 || u.bytes.Add(int64(n)) <= u.limits.QueryBytes {
		return nil
	}
	return u.rejectQuery(keyQueryBytes,
		"its labels and encoded samples exceed %d bytes; query a shorter range or fewer series", u.limits.QueryBytes)
}

// CheckRange checks the length of the time range that a query reads.
func (u *Use) CheckRange(d time.Duration) error {
	if u == nil || u.limits.QueryRange == 0 || d <= u.limits.QueryRange {
		return nil
	}
	return u.rejectQuery(KeyQueryRange,
		"it reads a time range of %s (from its first to its last step, plus its longest range selector); the maximum "+
			"is %s. Query a shorter range",
		d, u.limits.QueryRange)
}

// MaxRange returns the max time range of the tenant's queries, or 0 if there is no limit.
func (u *Use) MaxRange() time.Duration {
	if u == nil {
		return 0
	}
	return u.limits.QueryRange
}

// rejectQuery returns a *LimitError, and counts the query as rejected at the first call.
func (u *Use) rejectQuery(limit, format string, args ...any) error {
	if u.counted.CompareAndSwap(false, true) {
		u.limiter.CountRejected(u.tenant, limit, 1)
	}
	return &LimitError{Tenant: u.tenant, Limit: limit, Status: http.StatusUnprocessableEntity,
		Detail: "the query is too large: " + fmt.Sprintf(format, args...) + ", or ask the operator to raise the limit"}
}

// Used is a saved state of a Use.
type Used struct{ series, samples int64 }

// Snapshot returns the state of u, for Restore before a retry.
func (u *Use) Snapshot() Used {
	if u == nil {
		return Used{}
	}
	return Used{u.series.Load(), u.samples.Load()}
}

// Restore resets u to a saved state.
func (u *Use) Restore(to Used) {
	if u != nil {
		u.series.Store(to.series)
		u.samples.Store(to.samples)
	}
}
