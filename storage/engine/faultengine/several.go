package faultengine

import (
	"context"
	"iter"

	"github.com/cassia-db/cassia/storage/engine"
)

// ScanSeveral implements engine.SeveralScanner for tests, by one Scan per partition. Tests use it to add the method to
// an engine, like Occupied.
func ScanSeveral(ctx context.Context, e engine.Engine, r engine.Range,
	partitions []engine.Key) iter.Seq2[engine.RowOf, error] {
	return func(yield func(engine.RowOf, error) bool) {
		if _, err := engine.CheckSeveral(&r, partitions); err != nil {
			yield(engine.RowOf{}, err)
			return
		}
		for i, partition := range partitions {
			r.Partition = partition
			for row, err := range e.Scan(ctx, r) {
				if !yield(engine.RowOf{Row: row, At: i}, err) || err != nil {
					return
				}
			}
		}
	}
}
