package storage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// TestOpenTriesAgain opens a store on an engine that fails to create the settings, or creates them but returns an
// error. Open must retry if the engine is unavailable, for a limited number of times, and must return other errors
// immediately.
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

// TestPartitionsOfANewStore checks the default number of partitions of a new store. Later starts with
// Options.Partitions 0 must use the number of the store, and starts with another number must be rejected.
func TestPartitionsOfANewStore(t *testing.T) {
	open := func(eng engine.Engine, set func(*Options)) (*Store, error) {
		o := DefaultOptions()
		set(&o)
		return Open(t.Context(), eng, o)
	}
	for name, c := range map[string]struct {
		create func(*Options)
		want   int
	}{
		"alone":     {func(*Options) {}, 4},
		"shared":    {func(o *Options) { o.Shared = true }, 16},
		"asked for": {func(o *Options) { o.Partitions = 32 }, 32},
	} {
		t.Run(name, func(t *testing.T) {
			eng := memory.New()
			s, err := open(unclosed{eng}, c.create)
			require.NoError(t, err)
			require.Equal(t, c.want, s.Partitions())
			require.NoError(t, s.Close())
			for _, shared := range []bool{false, true} {
				s, err = open(unclosed{eng}, func(o *Options) { o.Shared = shared })
				require.NoError(t, err, "none are asked for, but a slot is")
				require.Equal(t, c.want, s.Partitions())
				require.NoError(t, s.Close())
			}
			_, err = open(unclosed{eng}, func(o *Options) { o.Partitions = 64 })
			require.ErrorIs(t, err, ErrOtherSettings)
			require.ErrorContains(t, err, "64 partitions")
			_, err = open(unclosed{eng}, func(o *Options) { o.Slot = 4 * time.Hour })
			require.ErrorIs(t, err, ErrOtherSettings)
		})
	}
}

// TestRefusedSettingsAreThoseAskedFor opens a store with a different slot width and Partitions 0, while a period with
// more partitions is scheduled. The error must not name the scheduled partitions, which were not requested.
func TestRefusedSettingsAreThoseAskedFor(t *testing.T) {
	eng := memory.New()
	o := DefaultOptions()
	s, err := Open(t.Context(), unclosed{eng}, o)
	require.NoError(t, err)
	_, err = s.SetPeriod(t.Context(), format.Period{Partitions: 64}, time.Time{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = Open(t.Context(), unclosed{eng}, o)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	o.Slot = 4 * time.Hour
	_, err = Open(t.Context(), unclosed{eng}, o)
	require.ErrorIs(t, err, ErrOtherSettings)
	require.NotContains(t, err.Error(), "64 partitions", "nobody asked for them, and the store doesn't have them yet")
}
