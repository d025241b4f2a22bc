package storage

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/pebble"
)

// TestDescriptionOfAStore creates a store, and reopens its files with CheckDescription and different options. Admit
// must reject another format or other settings because of the description in the files, before any row is read.
func TestDescriptionOfAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	described := func() (d description, text []byte) {
		o := pebble.DefaultOptions()
		o.ReadOnly, o.Admit = true, func(b []byte) error { text = b; return json.Unmarshal(b, &d) }
		eng, err := pebble.Open(dir, o)
		require.NoError(t, err)
		require.NoError(t, eng.Close())
		return d, text
	}
	open := func(opts Options) error {
		o := pebble.DefaultOptions()
		o.Admit = CheckDescription(opts)
		eng, err := pebble.Open(dir, o)
		if err != nil {
			return err
		}
		s, err := Open(t.Context(), eng, opts)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return eng.Close()
	}
	opts := DefaultOptions()
	require.NoError(t, open(opts))
	d, text := described()
	require.Equal(t, formatVersion, d.Version)
	require.Len(t, d.Periods, 1)

	other := opts
	other.Slot = time.Hour
	require.ErrorIs(t, open(other), ErrOtherSettings)
	other.AnySettings = true
	require.NoError(t, open(other))
	require.NoError(t, open(opts))
	_, again := described()
	require.Equal(t, string(text), string(again), "it is that of the store, whatever was asked for")

	for version, want := range map[int]error{formatVersion + 1: errNewerFormat, 0: errOlderFormat} {
		d.Version = version
		other, err := json.Marshal(d)
		require.NoError(t, err)
		eng, err := pebble.Open(dir, pebble.DefaultOptions())
		require.NoError(t, err)
		require.NoError(t, eng.DescribeStore(t.Context(), other))
		require.NoError(t, eng.Close())
		require.ErrorIs(t, open(opts), want)
	}
	require.ErrorContains(t, CheckDescription(opts)([]byte("{")), "the description of the store is corrupt")
}

// unsetEngine is an engine whose CompareAndSet can be made to fail.
type unsetEngine struct {
	*pebble.Engine
	failing bool
}

func (e *unsetEngine) CompareAndSet(
	ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte,
) (bool, []byte, error) {
	if e.failing {
		return false, nil, engine.ErrUnavailable
	}
	return e.Engine.CompareAndSet(ctx, t, partition, clustering, old, value)
}

// TestPeriodThatIsNotAdded adds a period. In one case the write of the settings row fails after the description was
// written. The test then opens the store at the start of that period. Open must fail or succeed according to the stored
// settings, not the description.
func TestPeriodThatIsNotAdded(t *testing.T) {
	t.Parallel()
	for _, added := range []bool{false, true} {
		dir, later := t.TempDir(), time.Duration(0)
		opts := DefaultOptions()
		opts.Now = func() time.Time { return time.Now().Add(later) }
		open := func(opts Options, f func(*Store)) error {
			o := pebble.DefaultOptions()
			o.Admit = CheckDescription(opts)
			eng, err := pebble.Open(dir, o)
			if err != nil {
				return err
			}
			unset := &unsetEngine{Engine: eng}
			s, err := Open(t.Context(), unset, opts)
			if err == nil {
				if unset.failing = !added; f != nil {
					f(s)
				}
				require.NoError(t, s.Close())
			}
			require.NoError(t, eng.Close())
			return err
		}
		require.NoError(t, open(opts, nil))
		require.NoError(t, open(opts, func(s *Store) {
			_, err := s.SetPeriod(t.Context(), format.Period{SlotMS: time.Hour.Milliseconds()}, time.Time{})
			require.Equal(t, added, err == nil, err)
		}))
		later = 30 * 24 * time.Hour
		other := opts
		other.Slot = time.Hour
		if added {
			opts, other = other, opts
		}
		require.ErrorIs(t, open(other, nil), ErrOtherSettings)
		require.NoError(t, open(opts, nil), "added: %v", added)
		require.ErrorIs(t, open(other, nil), ErrOtherSettings)
	}
}
