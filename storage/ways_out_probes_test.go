package storage

import (
	"context"
	"iter"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// probingWays is a clockedWays that can also probe multiple partitions at once.
type probingWays struct{ clockedWays }

// Occupied implements engine.Prober.
func (e probingWays) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	return faultengine.Occupied(ctx, e, t, partitions)
}

// ScanSeveral implements engine.SeveralScanner.
func (e probingWays) ScanSeveral(
	ctx context.Context, r engine.Range, partitions []engine.Key,
) iter.Seq2[engine.RowOf, error] {
	return faultengine.ScanSeveral(ctx, e, r, partitions)
}

// waiting returns the slots to seal in a round.
func (p *waysProcess) waiting(ctx context.Context, partition int) (work []Work, err error) {
	staged, err := p.Staged(ctx, partition, protocolSettle.Milliseconds())
	for _, s := range staged {
		work = append(work, s.Work)
	}
	return work, err
}
