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
	a, b := whole.SubBudget(80), whole.SubBudget(80)
	first, second := a.NewShare(t.Context()), b.NewShare(t.Context())
	require.NoError(t, first.Claim(60))
	require.ErrorIs(t, second.Claim(60), ErrBusy, "its own budget has room, and the whole has none")
	require.NoError(t, second.Claim(40))
	require.Equal(t, [3]int64{100, 60, 40}, [3]int64{whole.Used(), a.Used(), b.Used()})
	second.Release()
	third := a.NewShare(t.Context())
	require.ErrorIs(t, third.Claim(30), ErrBusy, "the whole has room, and its own budget has none")
	require.Equal(t, [3]int64{60, 60, 0}, [3]int64{whole.Used(), a.Used(), b.Used()})
	first.Release()
	first.Release()
	require.Equal(t, [3]int64{}, [3]int64{whole.Used(), a.Used(), b.Used()})

	var none *Budget
	alone := none.SubBudget(10).NewShare(t.Context())
	require.NoError(t, alone.Claim(10))
	require.ErrorIs(t, alone.Claim(1), ErrBusy)
}

// A client that sends slowly to one endpoint doesn't block the other endpoints.
func TestSlowSendersOfOtherPartsAreGivenUp(t *testing.T) {
	whole := NewBudget(100)
	a, b := whole.SubBudget(100), whole.SubBudget(100)
	slow := &stalledClient{}
	held := a.NewShare(WithSender(t.Context(), slow))
	slow.release = held.Release
	require.NoError(t, held.Claim(90))
	share := b.NewShare(t.Context())
	require.NoError(t, share.Claim(50))
	require.EqualValues(t, 1, slow.givenUp.Load())
	slow.releasing.Wait()
	share.Release()
	require.Zero(t, whole.Used())
	require.Empty(t, whole.holders)
	require.Empty(t, a.holders)
}

// stalledClient is a client that sends nothing.
type stalledClient struct {
	release   func()
	releasing sync.WaitGroup
	givenUp   atomic.Int64
}

func (s *stalledClient) Overdue(time.Time) (time.Duration, bool) { return time.Minute, true }

func (s *stalledClient) GiveUp() {
	if s.givenUp.Add(1) == 1 {
		s.releasing.Go(s.release)
	}
}
