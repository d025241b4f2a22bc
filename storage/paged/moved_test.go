package paged

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// stepwise is an engine whose scans of pages return each row as of the time it is requested, like an engine that
// fetches rows in parts. before is called before each row except the first.
type stepwise struct {
	engine.Engine

	before func()
}

func (e *stepwise) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if pagesOf(r.Table) == nil || r.KeysOnly {
		return e.Engine.Scan(ctx, r)
	}
	return func(yield func(engine.Row, error) bool) {
		var last engine.Key
		for {
			var found *engine.Row
			for row, err := range e.Engine.Scan(ctx, r) {
				if err != nil {
					yield(engine.Row{}, err)
					return
				}
				if last == nil || engine.Compare(row.Clustering, last) > 0 {
					found = &engine.Row{Clustering: row.Clustering.Clone(), Value: append([]byte(nil), row.Value...)}
					break
				}
			}
			if found == nil || !yield(*found, nil) {
				return
			}
			last = found.Clustering
			e.before()
		}
	}
}

// TestMovedPagesAreSeen requires that a scan that fetches pages in parts finds a page that is rewritten under another
// key, either the old or the new one. A reader that passed the new key before the page was written, and the old key
// after the page was removed, would miss entries that exist in no row.
func TestMovedPagesAreSeen(t *testing.T) {
	for _, table := range rowTables {
		for try := range 20 {
			eng := &stepwise{Engine: memory.New(), before: func() {}}
			series := seriesOf("up", 40)
			other := New(eng.Engine, Options{Shared: true})
			require.NoError(t, other.Write(t.Context(), []engine.Batch{newSeriesBatch(table, series[:20], 1)}))
			require.NoError(t, other.Write(t.Context(), []engine.Batch{newSeriesBatch(table, series[20:], 1)}))
			reader := New(eng, Options{Shared: true})

			var rewritten []engine.Batch
			for _, i := range []int{3, 30} {
				rewritten = append(rewritten, engine.Batch{
					Table: table, Partition: partitionOf("up"),
					Mutations: []engine.Mutation{series[i].better(table, 1, 1)},
				})
			}
			require.NoError(t, other.WriteRows(t.Context(), rewritten))
			steps := 0
			eng.before = func() {
				if steps++; steps == 1 {
					require.NoError(t, other.RemoveOutdone(t.Context(), table, partitionOf("up"),
						map[string]bool{series[3].id: true, series[30].id: true}, Rewriting{
							Timestamp: func(start int64, version uint64) int64 {
								return (start+slotMS)*1000 + int64(version)
							},
						}))
				}
			}
			chunks := engine.Key{engine.Int(format.KindChunk)}
			rows := mustRead(
				t, func(ctx context.Context, r engine.Range) seq { return reader.Scan(ctx, r) }, engine.Range{
					Table: table, Partition: partitionOf("up"), From: chunks, To: chunks,
				},
			)
			require.Positive(t, steps)
			require.Len(t, rows, len(series), "%s, try %d", table, try)
		}
	}
}
