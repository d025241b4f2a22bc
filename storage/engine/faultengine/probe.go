package faultengine

import (
	"context"

	"github.com/cassia-db/cassia/storage/engine"
)

// Occupied answers as engine.Prober does, and with its errors, by a Scan of each partition, one after another: a row that is written meanwhile
// may be seen or not, and a fault of one of the scans fails all. Tests give it to an engine that has no method of its own:
//
//	type probing struct{ *faultengine.Engine }
//
//	func (e probing) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
//		return faultengine.Occupied(ctx, e, t, partitions)
//	}
func Occupied(ctx context.Context, e engine.Engine, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	if _, err := engine.CheckProbe(t, partitions); err != nil {
		return nil, err
	}
	found := make([]bool, len(partitions))
	for i, partition := range partitions {
		for _, err := range e.Scan(ctx, engine.Range{Table: t, Partition: partition, KeysOnly: true, Limit: 1}) {
			if err != nil {
				return nil, err
			}
			found[i] = true
		}
	}
	return found, nil
}
