package cassandra

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestReadFacts checks the facts of a keyspace that doesn't exist yet, of a new keyspace, and of a keyspace whose
// tables differ from the options, and the error if no node responds.
func TestReadFacts(t *testing.T) {
	o := testOptions(t)
	ownKeyspace(t, &o)
	ctx := context.Background()
	f, err := ReadFacts(ctx, o)
	require.NoError(t, err)
	require.Nil(t, f.Replication)
	require.Empty(t, f.Differences)
	require.Len(t, f.Nodes, len(f.Cluster.local()))
	for _, n := range f.Nodes {
		require.NoError(t, n.Err)
		require.True(t, n.Up)
	}
	again, err := ReadFacts(ctx, o)
	require.NoError(t, err)
	require.Nil(t, again.Replication, "the first look made something")

	o.Retention = 30 * 24 * time.Hour
	require.NoError(t, open(t, o).Close())
	f, err = ReadFacts(ctx, o)
	require.NoError(t, err)
	require.Equal(t, map[string]int{f.Cluster.LocalDC: min(3, len(f.Nodes))}, f.Replication)
	require.Empty(t, f.Differences)
	require.Len(t, f.Nodes[0].Tables, len(engine.Tables))

	o.Retention = 365 * 24 * time.Hour
	f, err = ReadFacts(ctx, o)
	require.NoError(t, err)
	require.NotEmpty(t, f.Differences)
	for _, d := range f.Differences {
		require.Equal(t, "compaction_window", d.Option)
		require.Contains(t, d.Do, "ALTER TABLE "+o.Keyspace+"."+d.Table+" WITH compaction = {")
	}

	gone := o
	gone.Hosts = []string{"127.0.0.1:1"}
	_, err = ReadFacts(ctx, gone)
	require.ErrorContains(t, err, "no host responds; check that Cassandra is running there and accepts CQL connections")
}
