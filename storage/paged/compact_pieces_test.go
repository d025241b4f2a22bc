package paged

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestCompactStopsBetweenOthers compacts where nothing, or little, is to be done: writers needn't wait until the whole
// partition was read.
func TestCompactStopsBetweenOthers(t *testing.T) {
	t.Parallel()
	for name, slots := range map[string]int{"one chunk a series": 1, "compacted before": 6} {
		for at, eng := range engines {
			t.Run(name+" "+at, func(t *testing.T) {
				t.Parallel()
				r := New(eng(t), Options{})
				defer func() { require.NoError(t, r.eng.Close()) }()
				r.limits.compactRows = 4
				require.NoError(t, r.BeginLong(t.Context(), testWindow))
				b := engine.Batch{Table: engine.R5m, Partition: partitionOf("up")}
				series := seriesOf("up", 12)
				for _, s := range series {
					for slot := range slots {
						b.Mutations = append(b.Mutations, s.rollups(engine.R5m, slot, 1))
					}
				}
				require.NoError(t, r.WriteRows(t.Context(), []engine.Batch{b}))
				for range 2 {
					pieces := 0
					c := compactionOf(engine.R5m, "up")
					c.Between = func() { pieces++ }
					_, err := r.Compact(t.Context(), c)
					require.NoError(t, err)
					require.GreaterOrEqual(t, pieces, 3)
				}
				requireAllJoined(t, r.eng, engine.R5m, partitionOf("up"))
			})
		}
	}
}

// TestCompactLeavesChunksThatReachFurther compacts chunks with a bucket that lies behind the start of the next chunk:
// they stay as they are.
func TestCompactLeavesChunksThatReachFurther(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"buckets", "none"} {
		r := New(memory.New(), Options{})
		require.NoError(t, r.BeginLong(t.Context(), testWindow))
		s := seriesOf("up", 1)[0]
		chunkOf := func(slot int, at ...int64) engine.Mutation {
			m := s.rollups(engine.R5m, slot, 1)
			var samples chunk.Samples
			for _, t := range at {
				samples.AppendFloat(startOf(slot)+t, 0, 1)
			}
			var b rollup.Buckets
			rollup.AppendEvery(&b, &samples, rollup.FiveMinutes.Width())
			m.Value = rollup.AppendChunk(nil, &b, rollup.FiveMinutes.Width(), 1)
			return m
		}
		second := chunkOf(1, 2*slotMS/3)
		if next == "none" {
			second.Value = rollup.AppendEmpty(nil, 1)
		}
		require.NoError(t, r.WriteRows(t.Context(), []engine.Batch{{
			Table: engine.R5m, Partition: partitionOf("up"), Mutations: []engine.Mutation{chunkOf(0, 1, slotMS+1), second},
		}}))
		all := engine.Range{Table: engine.R5m, Partition: partitionOf("up")}
		before := mustRead(t, r.Scan, all)
		done, err := r.Compact(t.Context(), compactionOf(engine.R5m, "up"))
		require.NoError(t, err)
		requireRows(t, before, mustRead(t, r.Scan, all), "the next has %s", next)
		require.Equal(t, Compacted{Left: 1}, done)
	}
}
