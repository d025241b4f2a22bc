package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

type shardedMetric struct {
	window         int64
	tenant, metric string
}

// metricShards maps metrics of a tenant's window to their number of shards. It omits metrics with one shard.
type metricShards map[string]int64

func (m metricShards) count(metric string) int64 { return max(1, m[metric]) }

// shardsIn reads the numbers of shards of all metrics of a tenant in a window. Corrupt rows are reported.
func (s *Store) shardsIn(ctx context.Context, window int64, tenant string) (metricShards, error) {
	found := metricShards{}
	if err := s.retention.LoadExpiries(ctx, tenant, window); err != nil {
		return nil, err
	}
	for row, err := range s.eng.Scan(
		ctx, engine.Range{Table: engine.Shards, Partition: format.ShardsPartition(window, tenant)},
	) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the shards of tenant %q: %w", tenant, err)
		}
		metric := strings.Clone(row.Clustering[0].Text)
		n, err := format.ParseShards(row.Value)
		if err != nil {
			s.damage.RecordCorruptRow(
				engine.Shards,
				&damage.CorruptRowError{Table: engine.Shards, Window: window, Tenant: tenant, Metric: metric, Err: err},
			)
		}
		found[metric] = n
	}
	return found, nil
}

// spreadSeries ensures that a metric has enough shards for its series. It sorts list, which is ordered by id, by class
// and shard; series of the same shard stay ordered by id.
func (t *tenantPass) spreadSeries(metric string, list []stagedSeries) error {
	series, bytes := map[int64]int{}, map[int64]int64{} // by slot
	for i := range list {
		slot := list[i].work.Slot
		series[slot]++
		for st := range list[i].chunks.All() {
			bytes[slot] += st.EncodedBytes()
		}
	}
	for res := range rollup.Resolution(resolutions) {
		shards := int64(1)
		for slot, n := range series {
			of := t.partitions[slot]
			needed, err := t.roller.shardsFor(slot, res, metric, (n+of-1)/of, bytes[slot]/int64(of))
			if err != nil {
				return err
			}
			shards = max(shards, needed)
		}
		for i := range list {
			list[i].shards[res] = uint16(format.ShardOf(list[i].series.ID(), shards))
		}
	}
	slices.SortStableFunc(
		list, func(a, b stagedSeries) int { return cmp.Compare(a.location(rollup.Raw), b.location(rollup.Raw)) },
	)
	return nil
}

// readShards reads the number of shards of a metric in a window, for writers. A corrupt row is reported and read as 1.
func (s *Store) readShards(ctx context.Context, window int64, tenant, metric string) (int64, error) {
	return s.shardsSkipping(ctx, window, tenant, metric, nil)
}

// shardsSkipping is like readShards, with a function missed for unreadable rows, see shardsValue.
func (s *Store) shardsSkipping(
	ctx context.Context, window int64, tenant, metric string, missed func(*damage.DamagedRowsError),
) (int64, error) {
	if err := s.retention.LoadExpiries(ctx, tenant, window); err != nil {
		return 0, err
	}
	value, err := s.shardsValue(ctx, window, tenant, metric, missed)
	if err != nil || value == nil {
		return 1, err
	}
	n, err := format.ParseShards(value)
	if err != nil {
		s.damage.RecordCorruptRow(
			engine.Shards,
			&damage.CorruptRowError{Table: engine.Shards, Window: window, Tenant: tenant, Metric: metric, Err: err},
		)
	}
	return n, nil
}

// shardsValue reads the row with a metric's number of shards, and returns nil if there is none. If the row is
// unreadable and missed is set, shardsValue calls missed and returns the maximum number of shards, so that readers miss
// nothing. Writers must pass nil to get an error instead: with a wrong number they would write to the wrong shards,
// whose rows readers wouldn't find once the row is readable again.
func (s *Store) shardsValue(
	ctx context.Context, window int64, tenant, metric string, missed func(*damage.DamagedRowsError),
) ([]byte, error) {
	name := engine.Key{engine.Text(metric)}
	rows, lost := engine.Range{
		Table: engine.Shards, Partition: format.ShardsPartition(window, tenant), From: name, To: name,
	}, false
	if missed != nil {
		rows.Damaged = func(d engine.Damage) {
			lost = true
			missed(s.damage.GapOf(&rows, d))
		}
	}
	for row, err := range s.eng.Scan(ctx, rows) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the shards of metric %q: %w", metric, err)
		}
		return slices.Clone(row.Value), nil
	}
	if lost {
		return binary.AppendUvarint(nil, format.MaxShards), nil
	}
	return nil, nil
}
