// Package storetest opens stores for the tests of other packages.
package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// Open returns a store over an engine that can be asked for all that is there. It is closed when the test ends.
func Open(t testing.TB, eng engine.Engine, o storage.Options) *storage.Store {
	t.Helper()
	s, err := storage.Open(context.Background(), eng, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.WaitReady(context.Background()))
	return s
}

// Pebble returns an engine in a directory of its own. It is closed when the test ends, after the stores over it.
func Pebble(t testing.TB) *pebble.Engine {
	t.Helper()
	eng, err := pebble.Open(t.TempDir(), pebble.DefaultOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, eng.Close()) })
	return eng
}
