package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// metricsIn lists the metrics of a tenant's window.
func (s *Store) metricsIn(ctx context.Context, tenant string, window int64) (names []string, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Catalog, Partition: format.CatalogPartition(window, tenant, format.CatalogMetric, ""), KeysOnly: true,
	}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing metrics of %q: %w", tenant, err)
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, nil
}

// metricsToRoll lists the metrics of which sealers make rollups in a raw window: all where these are lacking, and otherwise
// those that a delete may be about, also where only rollups are left of them.
func (s *Store) metricsToRoll(ctx context.Context, tenant string, window int64, sealers map[int64]*sealer) ([]string, error) {
	var all []string
	for _, w := range s.windowsToRoll(window, sealers) {
		names, err := s.metricsIn(ctx, tenant, w)
		if err != nil {
			return nil, err
		}
		for _, metric := range names {
			if anyOf(sealers, func(x *sealer) bool { return !x.forDue && w == window || len(x.due.OfMetric(metric)) > 0 }) {
				all = append(all, metric)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// seriesToRoll lists the series of a metric of which sealers make rollups in a raw window, in the order of ids.
func (s *Store) seriesToRoll(ctx context.Context, tenant string, window int64, metric string, sealers map[int64]*sealer) ([]collected, error) {
	list, err := s.seriesIn(ctx, tenant, window, metric)
	if err != nil {
		return nil, err
	}
	known := map[format.SeriesID]bool{}
	for i := range list {
		known[list[i].series.ID()] = true
	}
	for _, w := range s.windowsToRoll(window, sealers)[1:] {
		rolled, err := s.seriesIn(ctx, tenant, w, metric)
		if err != nil {
			return nil, err
		}
		for _, c := range rolled {
			due := func(x *sealer) bool { return len(x.due.OfSeries(c.series.Labels())) > 0 }
			if !known[c.series.ID()] && anyOf(sealers, due) {
				known[c.series.ID()] = true
				list = append(list, c)
			}
		}
	}
	slices.SortFunc(list, func(a, b collected) int { return strings.Compare(a.series.ID().String(), b.series.ID().String()) })
	return list, nil
}

func anyOf(sealers map[int64]*sealer, is func(*sealer) bool) bool {
	for _, x := range sealers {
		if is(x) {
			return true
		}
	}
	return false
}

// windowsToRoll lists a raw window, and the windows of rollups that may know series which deletes are about and whose samples
// are gone: of other classes than those whose samples stand, or as rows vanish by themselves.
func (s *Store) windowsToRoll(window int64, sealers map[int64]*sealer) []int64 {
	windows := []int64{window}
	if s.classes.count() == 1 && !s.expiring {
		return windows
	}
	for _, x := range sealers {
		if len(x.due) == 0 {
			continue
		}
		for _, res := range rollup.Resolutions {
			if w := x.into[res].window; !slices.Contains(windows, w) {
				windows = append(windows, w)
			}
		}
	}
	return windows
}

// seriesIn reads the series of a metric in a window, in the order of ids.
func (s *Store) seriesIn(ctx context.Context, tenant string, window int64, metric string) ([]collected, error) {
	shards, err := s.readShards(ctx, window, tenant, metric)
	if err != nil {
		return nil, err
	}
	table, field := format.TableOf(format.ResolutionOf(window)), format.SeriesField(format.ResolutionOf(window))
	of := head.MetricOf(tenant, metric)
	var list []collected
	builder := labels.NewScratchBuilder(16)
	for at := range s.places(shards) {
		for row, err := range s.eng.Scan(ctx, engine.Range{
			Table: table, Partition: format.SeriesPartition(window, tenant, metric, at),
			From: engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)},
		}) {
			if err != nil {
				return nil, fmt.Errorf("storage: reading series of %q: %w", metric, err)
			}
			id := row.Clustering[field].Text
			ls, err := format.ParseLabels(row.Value, metric, &builder)
			if err != nil {
				s.corrupt(table, &CorruptRowError{Table: table, Window: window, Tenant: tenant, Metric: metric, Series: id, Err: err})
				continue
			}
			list = append(list, collected{series: of.Series(format.SeriesIDFrom(id), ls), class: at.Class()})
		}
	}
	// A series that has changed its class has rows in both: its rollups go where they are kept longest.
	kept := func(c *collected) time.Duration { return s.classes.keep(tenant, c.class).FiveMinutes }
	slices.SortFunc(list, func(a, b collected) int {
		order := strings.Compare(a.series.ID().String(), b.series.ID().String())
		switch {
		case order == 0 && shorter(kept(&b), kept(&a)):
			return -1
		case order == 0 && shorter(kept(&a), kept(&b)):
			return 1
		}
		return order
	})
	return slices.CompactFunc(list, func(a, b collected) bool { return a.series.ID() == b.series.ID() }), nil
}
