package storage

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/format"
)

// windowMetric is a metric in one window.
type windowMetric struct {
	window sealedWindow
	metric string
	shards int64 // 0: not known
}

// windowMetricBytes is what a windowMetric takes, and what is found of it.
const windowMetricBytes = 200

// windowMetrics lists the metrics of the windows that the matchers of __name__ match, by metric and then by
// window.
func (r *request) windowMetrics(ctx context.Context, windows []sealedWindow) ([]windowMetric, error) {
	var list []windowMetric
	if name, ok := r.oneMetric(); ok { // No catalog needs to be read.
		for _, w := range windows {
			if name != "" {
				list = append(list, windowMetric{window: w, metric: name})
			}
		}
		return list, nil
	}
	names := make([]metricNames, len(windows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readWorkers)
	for i, w := range windows {
		g.Go(func() (err error) {
			names[i], err = r.metrics(ctx, w)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, w := range windows {
		if err := r.budget.charge(len(names[i]) * windowMetricBytes); err != nil {
			return nil, err
		}
		for _, m := range names[i] {
			list = append(list, windowMetric{window: w, metric: m.name, shards: m.shards})
		}
	}
	if len(windows) > 1 {
		slices.SortStableFunc(list, func(a, b windowMetric) int { return strings.Compare(a.metric, b.metric) })
	}
	return list, nil
}

// oneMetric returns the name that the matchers ask for by equality; it is "" if they contradict each other,
// or ask for series without a name, of which there are none.
func (r *request) oneMetric() (name string, ok bool) {
	if name, ok = format.EqualName(r.matchers); ok && !format.MatchesName(r.matchers, name) {
		name = ""
	}
	return name, ok
}

// eachMatch calls visit for every one of the metrics that has series which match, from several goroutines:
// at is the metric's place in list, positions are the series'.
func (r *request) eachMatch(outer context.Context, list []windowMetric, visit func(at int, m *metricSeries, positions []uint32) error) error {
	g, ctx := errgroup.WithContext(outer)
	g.SetLimit(readWorkers)
	for i, wm := range list {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			m, err := r.series(ctx, wm.window, wm.metric, wm.shards)
			if err != nil {
				return err
			}
			positions := r.visible(wm.window, m, m.set.Match(r.matchers))
			if len(positions) == 0 {
				return nil
			}
			return visit(i, m, positions)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return outer.Err()
}
