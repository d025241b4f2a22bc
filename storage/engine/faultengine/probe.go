package faultengine

import (
	"context"

	"github.com/cassia-db/cassia/storage/engine"
)

// Occupied implements engine.Prober for tests, by one Scan per partition. It may or may not see a row that is written
// concurrently, and fails if one of the scans fails. Tests use it to add the method to an engine:
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
