package storage

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestOpenTriesAgain opens a store whose engine doesn't answer at first, though it may have applied the write.
func TestOpenTriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		fault faultengine.Action
		times int
		opens bool
	}{
		"not done":        {faultengine.Fail(engine.ErrUnavailable), createTries - 1, true},
		"done, not heard": {faultengine.Lose(engine.ErrUnavailable), createTries - 1, true},
		"too often":       {faultengine.Fail(engine.ErrUnavailable), createTries, false},
		"another error":   {faultengine.Fail(engine.ErrBadKey), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := 0
			eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
				if op.Kind == faultengine.CompareAndSet && faults < c.times {
					faults++
					return c.fault
				}
				return faultengine.Pass()
			})
			s, err := Open(context.Background(), eng, DefaultOptions())
			require.Equal(t, c.times, faults)
			if !c.opens {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Len(t, s.Periods(), 1)
			require.NoError(t, s.Close())
		})
	}
}
