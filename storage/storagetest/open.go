// Package storagetest opens and fills stores for the tests of other packages. It is the only place that defines the
// settings of a store under test. Tests of package storage, which can't import it, have testStore.
package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/pebble"
)

// Open returns a store on an engine. The store has the default options, changed by each non-nil function in change, in
// order. It is closed when the test ends. A test that also calls CheckAtEnd verifies the store's rows before that.
func Open(t testing.TB, eng engine.Engine, change ...func(*storage.Options)) *storage.Store {
	t.Helper()
	s := Start(t, eng, change...)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Start is like Open, but doesn't close the store when the test ends. It is for tests that close the store and open it
// again.
func Start(t testing.TB, eng engine.Engine, change ...func(*storage.Options)) *storage.Store {
	t.Helper()
	o := storage.DefaultOptions()
	for _, f := range change {
		if f != nil {
			f(&o)
		}
	}
	s, err := storage.Open(context.Background(), eng, o)
	require.NoError(t, err)
	require.NoError(t, s.WaitReady(context.Background()))
	return s
}

// CheckAtEnd verifies all stored rows when the test ends, before the store is closed.
func CheckAtEnd(t testing.TB, s *storage.Store) {
	t.Cleanup(func() {
		_, err := s.Check(context.Background(), func(problem string) { t.Error(problem) })
		require.NoError(t, err)
	})
}

// KeepForever keeps samples of any age.
func KeepForever(o *storage.Options) { o.Retention = 0 }

// Clock sets the store's clock.
func Clock(now func() time.Time) func(*storage.Options) {
	return func(o *storage.Options) { o.Now = now }
}

// FixedClock sets the store's clock to a constant time.
func FixedClock(now time.Time) func(*storage.Options) {
	return Clock(func() time.Time { return now })
}

// RejectAhead makes the store immediately reject samples that are too far ahead of its only clock.
func RejectAhead(o *storage.Options) { o.AheadPatience = 0 }

// SharedTarget makes the store one of multiple stores on an engine. name and target describe its process.
func SharedTarget(name, target string) func(*storage.Options) {
	return func(o *storage.Options) { o.Shared, o.Self = true, membership.Process{Name: name, Target: target} }
}

// Pebble returns an engine in its own directory. It is closed when the test ends, after the stores on it.
func Pebble(t testing.TB) *pebble.Engine {
	t.Helper()
	eng, err := pebble.Open(t.TempDir(), pebble.DefaultOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, eng.Close()) })
	return eng
}
