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

// ErrBusy means that concurrent requests hold the maximum number of bytes.
var ErrBusy = errors.New("adapter: too many bytes in flight")

// ErrTooLarge means that a request exceeds the maximum size.
var ErrTooLarge = errors.New("adapter: request too large")

// RetryAfter returns the Retry-After of a request rejected with 429: whole seconds, at least one. usual applies if err
// carries no duration.
func RetryAfter(err error, usual time.Duration) time.Duration {
	var limit *tenant.LimitError
	if errors.As(err, &limit) && limit.RetryAfter > 0 {
		usual = limit.RetryAfter
	}
	return max(time.Second, (usual + time.Second - 1).Truncate(time.Second))
}

// CombineErrors combines the errors of single samples into the error that decides the response to their request. It
// returns nil if a retry would be rejected again, otherwise an error with a status that senders retry. 503 takes
// precedence over 429, which Prometheus doesn't retry by default.
func CombineErrors(first, next error) error {
	switch code := HTTPStatus(next); {
	case code == http.StatusServiceUnavailable && (first == nil || HTTPStatus(first) != code),
		code == http.StatusTooManyRequests && first == nil:
		return next
	}
	return first
}

// HTTPStatus returns the HTTP status for a write or query that the store rejected as a whole. Senders drop the samples
// of a request on 4xx except 429, and retry on 5xx, so 4xx is only for requests that can never succeed.
func HTTPStatus(err error) int {
	var rejected *RejectedError
	var limit *tenant.LimitError
	switch {
	case errors.As(err, &limit):
		return limit.Status
	case errors.Is(err, storage.ErrTooManySeries), errors.Is(err, storage.ErrHeadShare):
		return http.StatusTooManyRequests
	case errors.Is(err, storage.ErrMaybeAhead), errors.Is(err, storage.ErrDroppedAhead):
		return http.StatusServiceUnavailable
	case errors.As(err, &rejected):
		return http.StatusBadRequest
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, meter.ErrQueryTooLarge):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrBusy), errors.Is(err, storage.ErrOverloaded), errors.Is(err, storage.ErrNotReady),
		errors.Is(err, ha.ErrHeldFull),
		errors.Is(err, membership.ErrClock), errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
