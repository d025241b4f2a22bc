package storage

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

// TestDescriptionOfAStore opens a store, and then its files with Admit of other options: a store in a newer format, or with other settings
// than those asked for, is refused by what its files say of it, before any row is read.
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
		o.Admit = Admit(opts)
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
	require.Equal(t, formatFilters, d.Format, "it was raised when the store was opened")
	require.Len(t, d.Periods, 1)

	other := opts
	other.Slot = time.Hour
	require.ErrorIs(t, open(other), ErrOtherSettings)
	other.AnySettings = true
	require.NoError(t, open(other))
	require.NoError(t, open(opts))
	_, again := described()
	require.Equal(t, string(text), string(again), "it is that of the store, whatever was asked for")

	d.Format = formatVersion + 1
	newer, err := json.Marshal(d)
	require.NoError(t, err)
	eng, err := pebble.Open(dir, pebble.DefaultOptions())
	require.NoError(t, err)
	require.NoError(t, eng.DescribeStore(t.Context(), newer))
	require.NoError(t, eng.Close())
	require.ErrorIs(t, open(opts), ErrNewerFormat)
	require.ErrorContains(t, Admit(opts)([]byte("{")), "the description of the store is corrupt")
}
