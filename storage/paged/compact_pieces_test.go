package paged

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestCompactStopsBetweenOthers compacts where nothing, or little, is to be done: writers needn't wait until the whole partition was read.
func TestCompactStopsBetweenOthers(t *testing.T) {
	t.Parallel()
	for name, slots := range map[string]int{"one chunk a series": 1, "compacted before": 6} {
		for at, eng := range engines {
			t.Run(name+" "+at, func(t *testing.T) {
				t.Parallel()
				r := New(eng(t), Options{Write: true})
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
