package tenant

import (
	"fmt"
	"net/http"
	"time"
)

// LimitError means that a tenant is at one of its limits. A request that fails with it is answered with Status.
type LimitError struct {
	Tenant string
	// Limit is the limit's name in the file.
	Limit string
	// Detail describes the request, the limit, and the remedy.
	Detail string
	// Status is that of HTTP: 429 where trying again helps, 413 for a request that never can be taken, 400 for samples that
	// can't be and 422 for queries.
	Status int
	// RetryAfter is when trying again may help, with 429.
	RetryAfter time.Duration

	// samples were asked for, with 429 of SamplesPerSecond, where burst and rate are allowed.
	samples, burst, rate int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("limit %s of tenant %q: %s", e.Limit, e.Tenant, e.Detail)
}

// Of returns the error for a request of n samples in all, of which this error refused a part: one that is larger than
// what may ever come at once must not be tried again.
func (e *LimitError) Of(n int) *LimitError {
	switch {
	case e.burst == 0 || e.Status != http.StatusTooManyRequests:
		return e
	case int64(n) > e.burst:
		return overBurst(e.Tenant, n, e.burst)
	}
	all := *e
	all.RetryAfter = e.RetryAfter + time.Duration(float64(int64(n)-e.samples)/float64(e.rate)*float64(time.Second))
	return &all
}

func overBurst(tenant string, n int, burst int64) *LimitError {
	return &LimitError{
		Tenant: tenant, Limit: KeySamplesBurst, Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("the request has %d samples, more than the burst limit of %d; send smaller requests, or ask the operator to raise the limit", n, burst),
	}
}
