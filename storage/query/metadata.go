package query

import (
	"context"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// metadataWindows is the number of windows that Metadata reads.
const metadataWindows = 8

// Metadata returns the metadata of a tenant's metrics from the newest eight raw windows, newest first for each metric.
// An empty metric selects all metrics. limit is the maximum number of metrics; 0 means no limit. Unreadable rows are
// skipped: see damage.WithWarnings.
func (q *Querier) Metadata(
	ctx context.Context, tenant, metric string, limit int,
) (map[string][]format.Metadata, error) {
	out, rows := map[string][]format.Metadata{}, engine.Range{Table: engine.Metadata}
	if metric != "" {
		rows.From = engine.Key{engine.Text(metric)}
		rows.To = rows.From
	}
	r := q.newReader(ctx, tenant, damage.Warnings(ctx))
	newest := q.env.Period.RawWindowAt(q.env.Now().UnixMilli())
	for window := newest; window > newest-metadataWindows; window-- {
		rows.Partition = engine.Key{engine.Int(window), engine.Text(tenant)}
		err := r.Scan(ctx, rows, func(row engine.Row) error {
			name := row.Clustering[0].Text
			if limit > 0 && len(out) >= limit && out[name] == nil {
				return nil
			}
			m, err := format.ParseMetadata(row.Value)
			if err != nil {
				r.reportCorrupt(&damage.CorruptRowError{
					Table: engine.Metadata, Window: window, Tenant: tenant, Metric: strings.Clone(name), Err: err,
				})
				return nil
			}
			if slices.Contains(out[name], m) {
				return nil
			}
			name = strings.Clone(name)
			out[name] = append(out[name], m)
			return r.budget.Charge(len(row.Value) + len(name))
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
