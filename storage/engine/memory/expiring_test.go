package memory_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

var (
	partition = engine.Key{engine.Int(1), engine.Int(1)}
	writer    = engine.Text("0123456789abcdef")
	key       = engine.Key{writer, engine.Int(1)}
)

// write writes mutations of one row, each in a Write of its own.
func write(t *testing.T, e *memory.Engine, mutations ...engine.Mutation) {
	for _, m := range mutations {
		m.Clustering = key
		require.NoError(t, e.Write(t.Context(), []engine.Batch{
			{Table: engine.Stage, Partition: partition, Mutations: []engine.Mutation{m}},
		}))
	}
}

// rowOf returns the row's value, or "" if the row doesn't exist.
func rowOf(t *testing.T, e *memory.Engine) (value string) {
	for row, err := range e.Scan(t.Context(), engine.Range{Table: engine.Stage, Partition: partition}) {
		require.NoError(t, err)
		value = string(row.Value)
	}
	return value
}

// TestExpiringRows checks that expiring rows win and disappear as on Cassandra.
func TestExpiringRows(t *testing.T) {
	const began = 1_777_636_800
	at := time.Unix(began, 0)
	put := func(value string, expires int64) engine.Batch {
		return engine.Batch{
			Table: engine.Stage, Partition: partition, Expires: expires,
			Mutations: []engine.Mutation{{Clustering: key, Timestamp: 7, Value: []byte(value)}},
		}
	}
	for _, c := range []struct {
		about        string
		first, other engine.Batch
		want         string
	}{
		{"what expires wins over what doesn't", put("a", began+10), put("b", 0), "a"},
		{"what expires later wins", put("a", began+20), put("b", began+10), "a"},
		{"the greater value wins where they expire at once", put("a", began+10), put("b", began+10), "b"},
		{"the greater value wins where neither expires", put("a", 0), put("b", 0), "b"},
	} {
		for range 2 {
			e := memory.NewExpiring(func() time.Time { return at })
			require.True(t, e.ExpiresRows())
			require.NoError(t, e.Write(t.Context(), []engine.Batch{c.first, c.other}))
			require.Equal(t, c.want, rowOf(t, e), c.about)
			c.first, c.other = c.other, c.first
		}
	}
	e := memory.NewExpiring(func() time.Time { return at })
	require.NoError(t, e.Write(t.Context(), []engine.Batch{put("a", began+10)}))
	require.Len(t, e.All(), 1)
	at = time.Unix(began+10, 0)
	require.Empty(t, rowOf(t, e), "it has vanished")
	require.Empty(t, e.All())
	require.NoError(t, e.Write(t.Context(), []engine.Batch{put("b", 0)}))
	require.Empty(t, rowOf(t, e), "its timestamp counts on")
	write(t, e, engine.Mutation{Timestamp: 8, Value: []byte("c")})
	require.Equal(t, "c", rowOf(t, e))
	err := e.Write(t.Context(), []engine.Batch{put("d", 0), put("e", began+10)})
	require.ErrorIs(t, err, engine.ErrExpired)
	require.Equal(t, "c", rowOf(t, e), "nothing of it was written")

	lasting := memory.New()
	require.False(t, lasting.ExpiresRows())
	require.NoError(t, lasting.Write(t.Context(), []engine.Batch{put("a", 1)}))
	require.Equal(t, "a", rowOf(t, lasting))
}

// TestAllRows checks that an engine to which the batches of All are written has the same rows as the first engine.
func TestAllRows(t *testing.T) {
	e := memory.New()
	for i := range int64(3) {
		b := engine.Batch{Table: engine.Stage, Partition: engine.Key{engine.Int(1), engine.Int(i)}}
		for seq := range int64(3) {
			b.Mutations = append(b.Mutations, engine.Mutation{
				Clustering: engine.Key{writer, engine.Int(seq)}, Timestamp: i, Value: []byte{byte(seq)},
			})
		}
		require.NoError(t, e.Write(t.Context(), []engine.Batch{b}))
	}
	write(t, e, engine.Mutation{Op: engine.Delete, Timestamp: 9})
	all := e.All()
	var rows []int
	for _, b := range all {
		rows = append(rows, len(b.Mutations))
	}
	require.Equal(t, []int{3, 2, 3}, rows)
	slices.Reverse(all)
	copied := memory.New()
	require.NoError(t, copied.Write(t.Context(), all))
	require.Equal(t, e.All(), copied.All())
}

// TestForgottenDeletes checks that a write with a lower timestamp than an earlier delete has no effect, until the
// record of the delete is removed.
func TestForgottenDeletes(t *testing.T) {
	e := memory.New()
	before := engine.Mutation{Timestamp: 5, Value: []byte("late")}
	write(t, e, engine.Mutation{Op: engine.Delete, Timestamp: 10}, before)
	require.Empty(t, rowOf(t, e))
	e.ForgetDeletes()
	write(t, e, before)
	require.Equal(t, "late", rowOf(t, e))
}
