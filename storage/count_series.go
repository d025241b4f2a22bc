package storage

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// SeriesQuery selects the series that CountSeries counts.
type SeriesQuery struct {
	Tenant string
	// Window is one of raw rows. Unsealed asks for the head instead, for all that isn't sealed.
	Window   int64
	Unsealed bool
	// Metric narrows to one; "": all.
	Metric string
	// Label asks for its values.
	Label string
	// Limit bounds each list.
	Limit int
}

// SeriesCounts count the labels of series. Lists have the greatest counts, the greatest first.
type SeriesCounts struct {
	Series int64
	// Metrics counts the series of metrics, Labels the different values of labels, Values the series with values of the label
	// that was asked for.
	Metrics, Labels, Values []Count
	// AllMetrics and AllLabels is how many there are.
	AllMetrics, AllLabels int
}

// CountSeries counts a tenant's series in a window, or in the head. Where the window was counted once it was over, and wasn't written to since, it reads
// these counts, unless a metric is asked for, or more than is stored; otherwise it reads labels. What it holds of them is bounded as a query is: then
// the error wraps ErrQueryTooLarge.
func (s *Store) CountSeries(ctx context.Context, q SeriesQuery) (SeriesCounts, error) {
	if q.Unsealed {
		return s.countOpen(ctx, q)
	}
	r, err := s.newRequest(ctx, Query{Tenant: q.Tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, overGaps: true})
	if err != nil {
		return SeriesCounts{}, err
	}
	w, err := windowFinder{r}.marks(ctx, q.Window, 0, 0)
	if err != nil || w.version == 0 || s.period.WindowEnd(q.Window) <= r.minT {
		return SeriesCounts{}, err
	}
	classes, others, err := s.countedClasses(ctx, q.Tenant, q.Window)
	if err != nil {
		return SeriesCounts{}, err
	}
	state := stateOf(w.version, others)
	if c := r.catalog().storedCounts(ctx, q.Window, state); c != nil {
		if answer, ok := answerFrom(c, q); ok {
			return answer, nil
		}
	}
	key := cacheKey{kind: cachedCounts, window: q.Window, tenant: q.Tenant, text: fmt.Sprintf("%s\x00%s\x00%d", q.Metric, q.Label, q.Limit)}
	v, err := s.cache.get(ctx, key, state, func() (cached, error) { return r.catalog().countSealed(ctx, w, classes, q) })
	if err != nil {
		return SeriesCounts{}, err
	}
	return SeriesCounts(v.(cachedSeriesCounts)), nil
}

func (s *Store) countOpen(ctx context.Context, q SeriesQuery) (SeriesCounts, error) {
	all, _, err := s.head.SeriesOf(ctx, q.Tenant)
	if err != nil {
		return SeriesCounts{}, err
	}
	c := s.newSeriesCounter(q)
	for i, ls := range all {
		if i%cancelEvery == 0 && ctx.Err() != nil {
			return SeriesCounts{}, ctx.Err()
		}
		if err := c.add(ls); err != nil {
			return SeriesCounts{}, err
		}
	}
	return c.counts(), nil
}

// cachedSeriesCounts are what the cache holds.
type cachedSeriesCounts SeriesCounts

func (c cachedSeriesCounts) bytes() (n int64) {
	for _, list := range [][]Count{c.Metrics, c.Labels, c.Values} {
		for _, one := range list {
			n += int64(len(one.Name)) + textBytes + 8
		}
	}
	return n
}

func (r catalogReader) countSealed(ctx context.Context, w sealedWindow, classes []int64, q SeriesQuery) (cached, error) {
	metrics, err := r.allMetrics(ctx, w)
	if err != nil {
		return nil, err
	}
	c, builder, walk := r.s.newSeriesCounter(q), labels.NewScratchBuilder(16), r.walk(w.window, classes)
	for _, m := range metrics {
		if q.Metric != "" && m.name != q.Metric {
			continue
		}
		err := walk.all(ctx, m, false, func(row engine.Row) error {
			ls, err := format.ParseLabels(row.Value, m.name, &builder)
			if err != nil {
				return nil // Queries name it, and so does Check.
			}
			return c.add(ls)
		})
		if err != nil {
			return nil, err
		}
	}
	return cachedSeriesCounts(c.counts()), nil
}

// walk returns a walk over a window. Rows that can't be read are warned of, and left out.
func (r catalogReader) walk(window int64, classes []int64) *seriesWalk {
	return &seriesWalk{s: r.s, tenant: r.tenant, window: window, classes: classes, scan: r.scan, between: func() {}}
}

// seriesCounter counts one series after the other.
type seriesCounter struct {
	q       SeriesQuery
	series  int64
	metrics map[string]uint64
	values  map[string]map[string]uint64
	budget  budget
}

func (s *Store) newSeriesCounter(q SeriesQuery) *seriesCounter {
	return &seriesCounter{q: q, metrics: map[string]uint64{}, values: map[string]map[string]uint64{}, budget: budget{limit: s.opts.QueryBytes}}
}

func (c *seriesCounter) add(ls labels.Labels) (err error) {
	name := ls.Get(labels.MetricName)
	if c.q.Metric != "" && name != c.q.Metric {
		return nil
	}
	c.series++
	c.metrics[name]++
	ls.Range(func(l labels.Label) {
		values := c.values[l.Name]
		if values == nil {
			values = map[string]uint64{}
			c.values[l.Name] = values
		}
		values[l.Value]++
		if values[l.Value] == 1 {
			// The map may hold the texts of all of a series' labels with this one.
			if full := c.budget.charge(len(l.Value) + valueBytes); full != nil {
				err = full
			}
		}
	})
	return err
}

// valueBytes is what a value takes in a seriesCounter besides its letters.
const valueBytes = 200

func (c *seriesCounter) counts() SeriesCounts {
	out := SeriesCounts{Series: c.series, AllMetrics: len(c.metrics), AllLabels: len(c.values)}
	metrics, names, values := greatest{limit: c.q.Limit}, greatest{limit: c.q.Limit}, greatest{limit: c.q.Limit}
	for name, n := range c.metrics {
		metrics.add(name, n)
	}
	for name, all := range c.values {
		names.add(name, uint64(len(all)))
	}
	for value, n := range c.values[c.q.Label] {
		values.add(value, n)
	}
	out.Metrics, out.Labels, out.Values = metrics.sorted(), names.sorted(), values.sorted()
	return out
}
