package adapter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
)

func TestStatus(t *testing.T) {
	for err, code := range map[error]int{
		storage.ErrTooManySeries:                                http.StatusTooManyRequests,
		storage.ErrHeadShare:                                    http.StatusTooManyRequests,
		refusal(storage.ErrTooManySeries):                       http.StatusTooManyRequests,
		refusal(storage.ErrTooOld):                              http.StatusBadRequest,
		refusal(&storage.LabelError{Reason: "duplicate_label"}): http.StatusBadRequest,
		refusal(&storage.InvalidHistogramError{Err: io.EOF}):    http.StatusBadRequest,
		ErrTooLarge:              http.StatusRequestEntityTooLarge,
		storage.ErrQueryTooLarge: http.StatusUnprocessableEntity,
		ErrBusy:                  http.StatusServiceUnavailable,
		storage.ErrOverloaded:    http.StatusServiceUnavailable,
		storage.ErrNotReady:      http.StatusServiceUnavailable,
		membership.ErrClock:      http.StatusServiceUnavailable,
		engine.ErrUnavailable:    http.StatusServiceUnavailable,
		engine.ErrClosed:         http.StatusServiceUnavailable,
		context.Canceled:         http.StatusServiceUnavailable,
		context.DeadlineExceeded: http.StatusServiceUnavailable,
		io.ErrUnexpectedEOF:      http.StatusInternalServerError,
		refusal(fmt.Errorf("wrapped: %w", engine.ErrUnavailable)): http.StatusServiceUnavailable,
	} {
		require.Equal(t, code, Status(fmt.Errorf("writing: %w", err)), "%v", err)
	}
}

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	one, other := b.Share(), b.Share()
	require.NoError(t, one.Take(60))
	require.ErrorIs(t, other.Take(41), ErrBusy)
	require.NoError(t, other.Take(40))
	require.EqualValues(t, 100, b.Used())
	one.Give()
	one.Give()
	require.EqualValues(t, 40, b.Used())
	require.NoError(t, other.Take(60))
	other.Give()
	require.Zero(t, b.Used())
}
