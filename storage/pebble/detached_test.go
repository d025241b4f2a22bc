package pebble

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// startAndLeave starts work, cancels the caller's context while it is under way, and returns a function that ends the
// work.
func startAndLeave(
	t *testing.T, e *Engine, start func(context.Context, string, func(), func() error) error,
) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	require.NoError(t, e.acquire())
	require.ErrorIs(t, start(ctx, "test", e.release, func() error {
		cancel()
		<-release
		return nil
	}), context.Canceled)
	return func() { close(release) }
}

// TestWritesWaitForThoseThatWereLeft checks that a write waits for earlier writes whose callers have returned, but not
// for other abandoned work, such as a compaction.
func TestWritesWaitForThoseThatWereLeft(t *testing.T) {
	e := openOn(t, vfs.NewMem())
	write := func() error {
		return e.Write(t.Context(), []engine.Batch{{
			Table: engine.Shards, Partition: engine.Key{engine.Int(1), engine.Text("t")},
			Mutations: []engine.Mutation{{
				Clustering: engine.Key{engine.Text("x")}, Timestamp: 1, Value: []byte("y"),
			}},
		}})
	}
	end := startAndLeave(t, e, e.run)
	require.NoError(t, write())
	end()
	end = startAndLeave(t, e, e.runCommit)
	wrote := make(chan error, 1)
	go func() { wrote <- write() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, e.awaitAbandoned(ctx), context.Canceled)
	require.Empty(t, wrote)
	end()
	require.NoError(t, <-wrote)
	require.NoError(t, e.awaitAbandoned(t.Context()))
	require.Empty(t, e.detachedWrites)
	require.NoError(t, e.Close())
}
