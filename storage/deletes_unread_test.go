package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestUnreadDeleteWarns has a delete whose row can't be decoded. It has no effect, and each query of the tenant says
// so.
func TestUnreadDeleteWarns(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) { unreadDeleteWarns(t, newExpiryRig(t, shared)) })
	}
}

func unreadDeleteWarns(t *testing.T, r *expiryRig) {
	require.NoError(t, r.eng.Write(t.Context(), []engine.Batch{
		{Table: engine.Tenants, Partition: engine.Key{engine.Int(deletersList)}, Mutations: []engine.Mutation{
			{Clustering: engine.Key{engine.Text("t")}, Timestamp: 1, Value: []byte{1}},
		}},
		{Table: engine.Deletes, Partition: deletePartition("t"), Mutations: []engine.Mutation{
			{Clustering: engine.Key{engine.Text("0123456789abcdef")}, Timestamp: 1, Value: []byte{0xff}},
		}},
	}))
	m := r.start(0)
	at := r.now().Truncate(2 * time.Hour).Add(-time.Hour)
	require.NoError(t, m.write(at, 1))
	for range 2 {
		n, warnings := m.bucketsAndWarnings(rollup.FiveMinutes, at.Add(-time.Hour), at.Add(time.Hour))
		require.Equal(t, 1, n)
		require.Len(t, warnings, 1)
		require.ErrorContains(t, warnings[0], "a delete of tenant \"t\" can't be read and has no effect")
		require.NoError(t, m.SealAll(t.Context()))
	}
}
