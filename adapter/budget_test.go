package adapter

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Endpoints whose budgets are parts of one budget compete for its bytes and never exceed it together.
func TestPartsOfABudgetAreBoundedTogether(t *testing.T) {
	whole := NewBudget(100)
	a, b := whole.Part(80), whole.Part(80)
	first, second := a.Share(t.Context()), b.Share(t.Context())
	require.NoError(t, first.Take(60))
	require.ErrorIs(t, second.Take(60), ErrBusy, "its own budget has room, and the whole has none")
	require.NoError(t, second.Take(40))
	require.Equal(t, [3]int64{100, 60, 40}, [3]int64{whole.Used(), a.Used(), b.Used()})
	second.Give()
	third := a.Share(t.Context())
	require.ErrorIs(t, third.Take(30), ErrBusy, "the whole has room, and its own budget has none")
	require.Equal(t, [3]int64{60, 60, 0}, [3]int64{whole.Used(), a.Used(), b.Used()})
	first.Give()
	first.Give()
	require.Equal(t, [3]int64{}, [3]int64{whole.Used(), a.Used(), b.Used()})

	var none *Budget
	alone := none.Part(10).Share(t.Context())
	require.NoError(t, alone.Take(10))
	require.ErrorIs(t, alone.Take(1), ErrBusy)
}

// A client that sends slowly to one endpoint doesn't block the other endpoints.
func TestSlowSendersOfOtherPartsAreGivenUp(t *testing.T) {
	whole := NewBudget(100)
	a, b := whole.Part(100), whole.Part(100)
	slow := &stalled{}
	held := a.Share(WithSender(t.Context(), slow))
	slow.release = held.Give
	require.NoError(t, held.Take(90))
	share := b.Share(t.Context())
	require.NoError(t, share.Take(50))
	require.EqualValues(t, 1, slow.givenUp.Load())
	slow.releasing.Wait()
	share.Give()
	require.Zero(t, whole.Used())
	require.Empty(t, whole.holders)
	require.Empty(t, a.holders)
}

// stalled is a client that sends nothing.
type stalled struct {
	release   func()
	releasing sync.WaitGroup
	givenUp   atomic.Int64
}

func (s *stalled) Overdue(time.Time) (time.Duration, bool) { return time.Minute, true }

func (s *stalled) GiveUp() {
	if s.givenUp.Add(1) == 1 {
		s.releasing.Go(s.release)
	}
}
