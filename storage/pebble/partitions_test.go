package pebble

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestPartitionsSkipDamage changes random bytes of sorted files, one at a time. Each partition with rows is listed or
// in a reported gap. Without a callback for gaps, each partition is listed or an error is returned.
func TestPartitionsSkipDamage(t *testing.T) {
	whole := layeredEngine(t)
	rng := rand.New(rand.NewPCG(1, 3))
	within := 0
	for range 40 {
		mem, _, about := turnByte(t, whole, rng)

		e := openOn(t, mem)
		found := map[int64]bool{}
		var gaps []engine.Damage
		for key, err := range e.Partitions(ctx, engine.Stage, nil, func(d engine.Damage) { gaps = append(gaps, d) }) {
			require.NoError(t, err, about)
			require.Len(t, key, 2, about)
			found[key[0].Int] = true
		}
		missing := 0
		for n := range int64(damagedPartitions) {
			key := engine.Key{engine.Int(n), engine.Int(0)}
			in := false
			for _, d := range gaps {
				require.ErrorIs(t, d.Err, engine.ErrCorrupt, about)
				in = in || (d.After == nil ||
					engine.Compare(d.After, key) < 0) && (d.Before == nil || engine.Compare(key, d.Before) < 0)
			}
			require.True(t, found[n] || in, "partition %d is missing: %s", n, about)
			if !found[n] {
				missing++
			}
		}
		if missing > 0 && missing < damagedPartitions {
			within++
		}
		listed := 0
		var err error
		for _, err = range e.Partitions(ctx, engine.Stage, nil, nil) {
			if err == nil {
				listed++
			}
		}
		require.True(t, listed >= damagedPartitions || err != nil, "%d partitions and no error: %s", listed, about)
		require.NoError(t, e.Close())
	}
	t.Log(within, "times some partitions were missing")
}

// TestPartitionsOfDeletedRows checks that partitions whose rows were deleted aren't listed, before and after their
// space is freed.
func TestPartitionsOfDeletedRows(t *testing.T) {
	mem := layeredEngine(t)
	e := openOn(t, mem)
	for n := range int64(damagedPartitions) {
		if n%3 == 0 {
			continue
		}
		b := stageBatch(0, "")
		b[0].Partition = engine.Key{engine.Int(n), engine.Int(0)}
		first := b[0].Mutations[0]
		first.Op, first.Value = engine.DeleteRange, nil
		first.To = engine.Key{first.Clustering[0], engine.Int(damagedRows)}
		b[0].Mutations = []engine.Mutation{first}
		require.NoError(t, e.Write(ctx, b))
	}
	for range 2 {
		var found []int64
		for key, err := range e.Partitions(ctx, engine.Stage, nil, nil) {
			require.NoError(t, err)
			found = append(found, key[0].Int)
		}
		require.Equal(t, []int64{0, 3, 6, 9}, found)
		require.NoError(t, e.CompactAll(ctx))
	}
	require.NoError(t, e.Close())
}
