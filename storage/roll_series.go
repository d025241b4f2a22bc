package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// metricsIn lists the names of the metrics in a tenant's window.
func (s *Store) metricsIn(ctx context.Context, tenant string, window int64) (names []string, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Catalog, Partition: format.CatalogPartition(window, tenant, format.CatalogMetric, ""),
		KeysOnly: true,
	}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing metrics of tenant %q: %w", tenant, err)
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, nil
}

// listMetrics lists the metrics whose rollups must be computed. If deletes are the only reason, these are the metrics
// that a delete may apply to, including metrics of which only rollups remain. Otherwise all metrics of the raw window
// are included.
func (x *windowRoller) listMetrics() ([]string, error) {
	var all []string
	for _, w := range x.windows() {
		names, err := x.s.metricsIn(x.ctx, x.tenant, w)
		if err != nil {
			return nil, err
		}
		for _, metric := range names {
			if x.anySlot(
				func(in *rolledSlot) bool { return !in.forDue && w == x.window || len(in.due.OfMetric(metric)) > 0 },
			) {
				all = append(all, metric)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// listSeries lists the series of a metric whose rollups must be computed, ordered by id. It includes series of which
// only rollups remain, if a delete may apply to them.
func (x *windowRoller) listSeries(metric string) (list []collectedSeries, err error) {
	known := map[format.SeriesID]bool{}
	for _, w := range x.windows() {
		found, err := x.s.seriesIn(x.ctx, x.tenant, w, metric)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			due := func(in *rolledSlot) bool { return len(in.due.OfSeries(s.Labels())) > 0 }
			if !known[s.ID()] && (w == x.window || x.anySlot(due)) {
				known[s.ID()] = true
				list = append(list, collectedSeries{series: s, class: x.classes.ClassOf(s)})
			}
		}
	}
	slices.SortFunc(list, func(a, b collectedSeries) int { return a.series.CompareID(b.series) })
	return list, nil
}

func (x *windowRoller) anySlot(is func(*rolledSlot) bool) bool {
	for _, in := range x.slots {
		if is(in) {
			return true
		}
	}
	return false
}

// windows lists the raw window, and the rollup windows in which deletes may apply to series without samples. A series
// may have no samples if raw rows of its class were dropped, or if raw rows expire in the engine.
func (x *windowRoller) windows() []int64 {
	windows := []int64{x.window}
	if x.s.retention.DropsTogether() {
		return windows
	}
	for _, in := range x.slots {
		if len(in.due) == 0 {
			continue
		}
		for _, res := range rollup.Resolutions {
			if w := in.into[res].window; !slices.Contains(windows, w) {
				windows = append(windows, w)
			}
		}
	}
	return windows
}

// seriesIn reads the series of a metric in a window. A series with rows in multiple classes or shards is returned
// multiple times.
func (s *Store) seriesIn(ctx context.Context, tenant string, window int64, metric string) (list []*Series, err error) {
	shards, err := s.readShards(ctx, window, tenant, metric)
	if err != nil {
		return nil, err
	}
	table, field := format.TableOf(format.ResolutionOf(window)), format.SeriesField(format.ResolutionOf(window))
	of := head.MetricOf(tenant, metric)
	builder := labels.NewScratchBuilder(16)
	for at := range s.unexpiredShards(tenantWindow{tenant, window}, shards) {
		for row, err := range s.rows.Scan(ctx, engine.Range{
			Table: table, Partition: format.SeriesPartition(window, tenant, metric, at),
			From: engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)},
		}) {
			if err != nil {
				return nil, fmt.Errorf("storage: reading series of metric %q: %w", metric, err)
			}
			id := row.Clustering[field].Text
			ls, err := format.ParseLabels(row.Value, metric, &builder)
			if err != nil {
				s.damage.RecordCorruptRow(table, &damage.CorruptRowError{
					Table: table, Window: window, Tenant: tenant, Metric: metric, Series: id, Err: err,
				})
				continue
			}
			list = append(list, of.Series(format.SeriesIDFrom(id), ls))
		}
	}
	return list, nil
}
