package adapter

import (
	"context"
	"errors"
	"net/http"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
)

// ErrBusy says that the requests under way hold as many bytes as they may.
var ErrBusy = errors.New("adapter: too many bytes in flight")

// ErrTooLarge says that a request is larger than any that is taken.
var ErrTooLarge = errors.New("adapter: request too large")

// Status returns the code of an answer to a write or a query that the store refused or couldn't take as a whole.
// Senders give up on 4xx, 429 apart, and try 5xx again: only what can never succeed is 4xx.
func Status(err error) int {
	var refused *Refused
	switch {
	case errors.Is(err, storage.ErrTooManySeries):
		return http.StatusTooManyRequests
	case errors.As(err, &refused):
		return http.StatusBadRequest
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, storage.ErrQueryTooLarge):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrBusy), errors.Is(err, storage.ErrOverloaded), errors.Is(err, storage.ErrNotReady),
		errors.Is(err, storage.ErrClock), errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
