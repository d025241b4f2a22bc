package pebble

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	_, err = Open(dir, DefaultOptions())
	require.ErrorIs(t, err, engine.ErrLocked)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "stop the process that uses it")
	require.NoError(t, e.Close())

	e, err = Open(dir, DefaultOptions())
	require.NoError(t, err, "closing gives the lock back")
	require.NoError(t, e.Close())
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	partition := engine.Key{engine.Int(-3), engine.Int(7)}
	row := engine.Key{engine.Text("0123456789abcdef"), engine.Int(1 << 40)}
	require.NoError(t, e.Write(ctx, []engine.Batch{{Table: engine.Stage, Partition: partition, Mutations: []engine.Mutation{{Clustering: row, Value: []byte("blob")}}}}))
	require.NoError(t, e.Close())
	e, err = Open(dir, DefaultOptions())
	require.NoError(t, err)
	n := 0
	for r, err := range e.Scan(ctx, engine.Range{Table: engine.Stage, Partition: partition}) {
		require.NoError(t, err)
		require.Equal(t, row, r.Clustering)
		require.Equal(t, "blob", string(r.Value))
		n++
	}
	require.Equal(t, 1, n)
	require.NoError(t, e.Close())
}
