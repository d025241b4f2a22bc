package adapter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/meter"
)

func TestStatus(t *testing.T) {
	for err, code := range map[error]int{
		storage.ErrTooManySeries:                                   http.StatusTooManyRequests,
		storage.ErrHeadShare:                                       http.StatusTooManyRequests,
		asRejected(storage.ErrTooManySeries):                       http.StatusTooManyRequests,
		asRejected(storage.ErrTooOld):                              http.StatusBadRequest,
		asRejected(&storage.LabelError{Reason: "duplicate_label"}): http.StatusBadRequest,
		asRejected(&storage.InvalidHistogramError{Err: io.EOF}):    http.StatusBadRequest,
		ErrTooLarge:              http.StatusRequestEntityTooLarge,
		meter.ErrQueryTooLarge:   http.StatusUnprocessableEntity,
		ErrBusy:                  http.StatusServiceUnavailable,
		storage.ErrOverloaded:    http.StatusServiceUnavailable,
		storage.ErrNotReady:      http.StatusServiceUnavailable,
		membership.ErrClock:      http.StatusServiceUnavailable,
		engine.ErrUnavailable:    http.StatusServiceUnavailable,
		engine.ErrClosed:         http.StatusServiceUnavailable,
		context.Canceled:         http.StatusServiceUnavailable,
		context.DeadlineExceeded: http.StatusServiceUnavailable,
		io.ErrUnexpectedEOF:      http.StatusInternalServerError,
		asRejected(fmt.Errorf("wrapped: %w", engine.ErrUnavailable)): http.StatusServiceUnavailable,
	} {
		require.Equal(t, code, HTTPStatus(fmt.Errorf("writing: %w", err)), "%v", err)
	}
}

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	one, other := b.NewShare(t.Context()), b.NewShare(t.Context())
	require.NoError(t, one.Claim(60))
	require.ErrorIs(t, other.Claim(41), ErrBusy)
	require.NoError(t, other.Claim(40))
	require.EqualValues(t, 100, b.Used())
	one.Release()
	one.Release()
	require.EqualValues(t, 40, b.Used())
	require.NoError(t, other.Claim(60))
	other.Release()
	require.Zero(t, b.Used())
}

// slowClient is a client that has delayed its request for overdue. When its request is aborted, its share is returned
// to the budget soon afterwards.
type slowClient struct {
	overdue    time.Duration
	isWaiting  bool
	share      Share
	hasGivenUp bool
}

func (c *slowClient) Overdue(time.Time) (time.Duration, bool) { return c.overdue, c.isWaiting }

func (c *slowClient) GiveUp() {
	c.hasGivenUp = true
	go c.share.Release()
}

// When all bytes are claimed, the requests of the slowest clients are aborted, but no more of them than necessary.
func TestBudgetMakesRoom(t *testing.T) {
	b := NewBudget(100)
	hold := func(bytes int64, overdue time.Duration, waits bool) *slowClient {
		c := &slowClient{overdue: overdue, isWaiting: waits}
		c.share = b.NewShare(WithSender(t.Context(), c))
		require.NoError(t, c.share.Claim(bytes))
		return c
	}
	slowest, slow := hold(30, time.Minute, true), hold(30, time.Second, true)
	quick, computed := hold(20, senderPatience-1, true), hold(20, time.Hour, false)
	next := b.NewShare(t.Context())
	require.NoError(t, next.Claim(30))
	require.True(t, slowest.hasGivenUp)
	require.False(t, slow.hasGivenUp)
	next.Release()
	require.NoError(t, next.Claim(60))
	require.True(t, slow.hasGivenUp)
	require.ErrorIs(t, next.Claim(1), ErrBusy)
	require.False(t, quick.hasGivenUp || computed.hasGivenUp)
	for _, c := range []*slowClient{quick, computed} {
		c.share.Release()
	}
	next.Release()
	require.Zero(t, b.Used())
	require.Empty(t, b.holders)
}

// stalledReader returns some bytes and then blocks.
type stalledReader struct {
	bytes   int
	stalled chan struct{}
	end     chan struct{}
}

func (r *stalledReader) Read(into []byte) (int, error) {
	if r.bytes == 0 {
		close(r.stalled)
		<-r.end
		return 0, io.EOF
	}
	n := min(len(into), r.bytes)
	r.bytes -= n
	return n, nil
}

// A body claims bytes as they arrive, regardless of the length that its client announces.
func TestBodiesClaimWhatArrives(t *testing.T) {
	const announced = 32 << 20
	for _, arrived := range []int{0, 1, 10_000, 100_000, 1 << 20, 10 << 20} {
		for _, length := range []int64{-1, announced} {
			b, r := NewBudget(1<<30), &stalledReader{arrived, make(chan struct{}), make(chan struct{})}
			done := make(chan int)
			go func() {
				share := b.NewShare(t.Context())
				defer share.Release()
				body, err := ReadAll(r, announced, length, &share)
				require.NoError(t, err)
				done <- len(body)
			}()
			<-r.stalled
			require.LessOrEqual(t, b.Used(), int64(FirstRead+6*arrived), "%d of %d", arrived, length)
			close(r.end)
			require.Equal(t, arrived, <-done)
		}
	}
}
