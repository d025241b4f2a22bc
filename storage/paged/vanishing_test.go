package paged

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// A page isn't written anew when one of those that explain it has vanished meanwhile: a labels page that outlived its filter
// would hide its series from readers, and a data page without labels is damage.
func TestVanishingPagesAreLeft(t *testing.T) {
	for _, table := range rowTables {
		of := tablesOf(table)
		for gone, match := range map[string]func(key engine.Key) bool{
			"labels": func(key engine.Key) bool { return key[0].Int == format.KindLabels },
			"filter": func(key engine.Key) bool { return key[0].Int == format.KindFilter },
		} {
			t.Run(fmt.Sprint(table, " ", gone), func(t *testing.T) {
				eng := memory.New()
				r := New(eng, Options{Shared: true})
				series := seriesOf("up", 20)
				require.NoError(t, r.Write(t.Context(), []engine.Batch{written(table, series, 1)}))
				require.NoError(t, r.WriteRows(t.Context(), []engine.Batch{{Table: table, Partition: partitionOf("up"), Mutations: []engine.Mutation{series[3].better(table, 1, 1)}}}))
				b := engine.Batch{Table: of.pages, Partition: partitionOf("up")}
				for row, err := range eng.Scan(t.Context(), engine.Range{Table: of.pages, Partition: partitionOf("up")}) {
					require.NoError(t, err)
					if match(row.Clustering) {
						b.Mutations = append(b.Mutations, engine.Mutation{Op: engine.Delete, Clustering: row.Clustering.Clone(), Timestamp: (windowMS + format.DayMS) * 1000})
					}
				}
				require.Len(t, b.Mutations, 1)
				require.NoError(t, eng.Write(t.Context(), []engine.Batch{b}))
				keys := func() (keys []string) {
					for row, err := range eng.Scan(t.Context(), engine.Range{Table: of.pages, Partition: partitionOf("up"), KeysOnly: true}) {
						require.NoError(t, err)
						keys = append(keys, fmt.Sprint(row.Clustering))
					}
					return keys
				}
				before := keys()
				require.NoError(t, r.RemoveOutdone(t.Context(), table, partitionOf("up"), map[string]bool{series[3].id: true}, Rewriting{
					Timestamp: func(start int64, version uint64) int64 { return (start+slotMS)*1000 + int64(version) }, Explains: (windowMS+format.DayMS)*1000 + 1,
					Explain: func(int64, [][]byte) error { return nil },
				}))
				require.Equal(t, before, keys())
			})
		}
	}
}
