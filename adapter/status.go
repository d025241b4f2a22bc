package adapter

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// ErrBusy means that the requests under way hold as many bytes as they may.
var ErrBusy = errors.New("adapter: too many bytes in flight")

// ErrTooLarge means that a request is larger than any that is taken.
var ErrTooLarge = errors.New("adapter: request too large")

// RetryAfter returns when a request may be sent again that was refused with 429, whole seconds, at least one; usual is
// for those where nothing is known.
func RetryAfter(err error, usual time.Duration) time.Duration {
	var limit *tenant.LimitError
	if errors.As(err, &limit) && limit.RetryAfter > 0 {
		usual = limit.RetryAfter
	}
	return max(time.Second, (usual + time.Second - 1).Truncate(time.Second))
}

// Later returns which of two refusals of single samples decides the answer to their request: nil where the same is refused again later,
// otherwise one that a sender tries again. 503 wins over 429, which Prometheus doesn't try again by default.
func Later(first, next error) error {
	switch code := Status(next); {
	case code == http.StatusServiceUnavailable && (first == nil || Status(first) != code), code == http.StatusTooManyRequests && first == nil:
		return next
	}
	return first
}

// Status returns the code of an answer to a write or a query that the store refused or couldn't take as a whole.
// Senders give up on 4xx, 429 apart, and try 5xx again: only what can never succeed is 4xx.
func Status(err error) int {
	var refused *Refused
	var limit *tenant.LimitError
	switch {
	case errors.As(err, &limit):
		return limit.Status
	case errors.Is(err, storage.ErrTooManySeries), errors.Is(err, storage.ErrHeadShare):
		return http.StatusTooManyRequests
	case errors.Is(err, storage.ErrMaybeAhead), errors.Is(err, storage.ErrDroppedAhead):
		return http.StatusServiceUnavailable
	case errors.As(err, &refused):
		return http.StatusBadRequest
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, meter.ErrQueryTooLarge):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrBusy), errors.Is(err, storage.ErrOverloaded), errors.Is(err, storage.ErrNotReady), errors.Is(err, ha.ErrHeldFull),
		errors.Is(err, membership.ErrClock), errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
