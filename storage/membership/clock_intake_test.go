package membership

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

type unreadClock struct{ asked *int }

func (u unreadClock) Clock(context.Context) (time.Time, error) {
	*u.asked++
	return time.Time{}, engine.ErrUnavailable
}

// TestCallersShareAFailedReading checks that concurrent callers share one error while the cluster doesn't respond.
// Otherwise the last of them would wait for the timeouts of all. A later caller reads the clock again.
func TestCallersShareAFailedReading(t *testing.T) {
	asked := 0
	c := &CheckedClock{o: &Options{Now: time.Now}, open: t.Context(), theirs: unreadClock{&asked}}
	before := c.comparing.started.Load()
	for range 20 { // These calls were concurrent with the reading.
		require.ErrorIs(t, c.compareAfter(before), engine.ErrUnavailable)
	}
	require.Equal(t, 1, asked)
	_, err := c.ConfirmAhead()
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.Equal(t, 2, asked)
}
