package storage

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestCountsBesideDamagedLabels damages labels. An answer must have a warning if and only if series are missing from
// it.
func TestCountsBesideDamagedLabels(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"page", "row"} {
		m := newPagedModel(t, 20, func(o *Options) {
			if form == "row" {
				rowsOnly(o)
			}
		})
		m.testStore.damaged = true
		m.some("0123", 3, deletedAgo)
		require.NoError(t, m.SealAll(t.Context()))
		partitions := slices.DeleteFunc(
			m.pagedPartitions("default"),
			func(p pagedPartition) bool { return p.res != rollup.Raw || p.key[3].Text != "up" },
		)
		require.Len(t, partitions, 1)
		if form == "page" {
			p := m.pagesIn(partitions)[0]
			require.True(t, p.isLabels())
			m.putPage(p, []byte("no page"))
		} else {
			key := format.LabelsKey(rollup.Raw, format.SeriesIDOf(m.labels[0]).String())
			require.NoError(t, m.testStore.eng.Write(t.Context(), []engine.Batch{
				{Table: engine.Raw, Partition: partitions[0].key, Mutations: []engine.Mutation{
					{Clustering: key, Timestamp: format.MaxTime, Value: []byte{9}},
				}},
			}))
		}
		m.again()
		for _, metric := range []string{"", "up", "load"} {
			for range 2 {
				var told []string
				q := counts.SeriesQuery{Tenant: "default", Window: partitions[0].key[0].Int, Metric: metric, Limit: 10}
				found, err := m.Counts().CountSeries(
					damage.WithWarnings(t.Context(), func(err error) { told = append(told, err.Error()) }), q,
				)
				require.NoError(t, err)
				require.Equal(
					t, map[string]int64{"": 40, "up": 20, "load": 20}[metric] > found.Series, len(told) > 0, "%s: %v",
					metric, told,
				)
				require.Equal(t, metric != "load", len(told) > 0, metric)
				for _, text := range told {
					require.Contains(t, text, `"up"`)
				}
			}
		}
	}
}
