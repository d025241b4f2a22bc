package tenant

import (
	"fmt"
	"net/http"
	"time"
)

// LimitError means that a tenant has reached one of its limits.
type LimitError struct {
	Tenant string
	// Limit is the limit's name in the limits file.
	Limit string
	// Detail describes the request, the limit, and the remedy.
	Detail string
	// Status is the HTTP status of the response: 429 if a retry can succeed, 413 for a request that can never be
	// accepted, 400 for samples that can never be accepted, and 422 for queries.
	Status int
	// RetryAfter is the time after which a retry may succeed, with status 429.
	RetryAfter time.Duration

	// samples is the number of rejected samples if SamplesPerSecond caused a 429. burst and rate are the limits of
	// samples.
	samples, burst, rate int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("limit %s of tenant %q: %s", e.Limit, e.Tenant, e.Detail)
}

// ForRequest returns the error for a request with n samples. e has rejected a part of them. If n exceeds the burst, the
// returned error has status 413, because a retry would fail again. Otherwise its RetryAfter is long enough for all n
// samples.
func (e *LimitError) ForRequest(n int) *LimitError {
	switch {
	case e.burst == 0 || e.Status != http.StatusTooManyRequests:
		return e
	case int64(n) > e.burst:
		return newBurstError(e.Tenant, n, e.burst)
	}
	all := *e
	all.RetryAfter = e.RetryAfter + time.Duration(float64(int64(n)-e.samples)/float64(e.rate)*float64(time.Second))
	return &all
}

func newBurstError(tenant string, n int, burst int64) *LimitError {
	return &LimitError{
		Tenant: tenant, Limit: keySamplesBurst, Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf(
			"the request has %d samples, more than the burst limit of %d; send smaller requests, or ask the operator "+
				"to raise the limit",
			n, burst,
		),
	}
}
