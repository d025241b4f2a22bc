package promql

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStreamsGiveTheirPlaceAway checks that a streamed answer whose client reads slowly releases its place for another
// read, and waits for a place before it continues.
func TestStreamsGiveTheirPlaceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.MaxConcurrency = 1
		e := NewEngine(o)
		stream, leave, err := e.Enter(t.Context())
		require.NoError(t, err)
		read, written := make(chan struct{}), make(chan error, 1)
		write := func() {
			go func() {
				_, err := StreamAnswer(stream, 100, func() (int, error) { <-read; return 50, nil })
				written <- err
			}()
			time.Sleep(writePatience)
			synctest.Wait()
		}
		write()
		require.EqualValues(t, 100, e.gate.queries.heldBytes())
		_, leaveOther, err := e.Enter(t.Context())
		require.NoError(t, err, "there is a place")
		read <- struct{}{}
		synctest.Wait()
		require.Empty(t, written, "it waits for a place")
		require.Zero(t, e.gate.queries.heldBytes())
		leaveOther()
		require.NoError(t, <-written)

		quick, err := StreamAnswer(stream, 100, func() (int, error) { return 50, nil })
		require.NoError(t, err)
		require.Equal(t, 50, quick)
		write()
		close(read)
		require.NoError(t, <-written)
		leave()
		require.Empty(t, e.gate.entered)
		require.Zero(t, e.gate.queries.heldBytes())
	})
}
