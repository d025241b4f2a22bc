package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
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

// CountSeries counts a tenant's series in a window, or in the head. It reads their labels; what it holds of them is bounded
// as a query is: then the error wraps ErrQueryTooLarge.
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
	key := cacheKey{kind: cachedCounts, window: q.Window, tenant: q.Tenant, text: fmt.Sprintf("%s\x00%s\x00%d", q.Metric, q.Label, q.Limit)}
	v, err := s.cache.get(ctx, key, w.version, func() (cached, error) { return r.catalog().countSealed(ctx, w, q) })
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

func (r catalogReader) countSealed(ctx context.Context, w sealedWindow, q SeriesQuery) (cached, error) {
	metrics, err := r.allMetrics(ctx, w)
	if err != nil {
		return nil, err
	}
	c, builder := r.s.newSeriesCounter(q), labels.NewScratchBuilder(16)
	for _, m := range metrics {
		if q.Metric != "" && m.name != q.Metric {
			continue
		}
		err := r.eachLabelsRow(ctx, w.window, m, false, func(row engine.Row) error {
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

// eachLabelsRow yields the rows of labels of a metric's series in a window.
func (r catalogReader) eachLabelsRow(ctx context.Context, window int64, m sealedMetric, keysOnly bool, row func(engine.Row) error) error {
	for at := range r.s.places(m.shards) {
		err := r.scan(ctx, engine.Range{
			Table: format.TableOf(format.ResolutionOf(window)), Partition: format.SeriesPartition(window, r.tenant, m.name, at),
			From: engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)}, KeysOnly: keysOnly,
		}, row)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
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

// WindowSeries is how many series a window of raw rows has, and how they differ from those of the window before.
type WindowSeries struct {
	Window     int64
	Start, End time.Time
	Metrics    int
	Series     int
	// Added weren't there in the window before, and Gone were there and aren't any more. Where the window before isn't
	// known, both are -1.
	Added, Gone int
}

// maxChurnSeries bounds the series that one Churn looks at.
const maxChurnSeries = 5_000_000

// Churn compares a tenant's newest windows of raw rows, the oldest first. cut is true if there were more series than it
// looks at, so that the older ones of the windows are missing. It reads keys, and remembers what it found of each window
// while the window doesn't change.
func (s *Store) Churn(ctx context.Context, tenant string, windows int) (list []WindowSeries, cut bool, err error) {
	r, err := s.newRequest(ctx, Query{Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, overGaps: true})
	if err != nil {
		return nil, false, err
	}
	found, err := windowFinder{r}.windows(ctx, rollup.Raw)
	if err != nil {
		return nil, false, err
	}
	// One more, to compare the oldest with.
	found = found[max(0, len(found)-windows-1):]
	sets, read := make([]*windowSet, len(found)), 0
	for i := len(found) - 1; i >= 0; i-- {
		if read > maxChurnSeries {
			cut, found, sets = true, found[i+1:], sets[i+1:]
			break
		}
		if sets[i], err = r.catalog().setOf(ctx, found[i]); err != nil {
			return nil, false, err
		}
		read += len(sets[i].ids)
	}
	for i, w := range found {
		start, end := time.UnixMilli(s.startOf(w.window)).UTC(), time.UnixMilli(s.period.WindowEnd(w.window)).UTC()
		one := WindowSeries{Window: w.window, Start: start, End: end, Metrics: sets[i].metrics, Series: len(sets[i].ids), Added: -1, Gone: -1}
		if i > 0 && s.period.RawWindowEnd(found[i-1].window) == start.UnixMilli() {
			both := 0
			for id := range sets[i].ids {
				if _, ok := sets[i-1].ids[id]; ok {
					both++
				}
			}
			one.Added, one.Gone = one.Series-both, len(sets[i-1].ids)-both
		}
		list = append(list, one)
	}
	return list[max(0, len(list)-windows):], cut, nil
}

// windowSet are the ids of a window's series.
type windowSet struct {
	ids     map[format.SeriesID]struct{}
	metrics int
}

// idBytes is what an id takes in a map, about.
const idBytes = 24

func (w *windowSet) bytes() int64 { return int64(len(w.ids)) * idBytes }

func (r catalogReader) setOf(ctx context.Context, w sealedWindow) (*windowSet, error) {
	v, err := r.s.cache.get(ctx, cacheKey{kind: cachedIDs, window: w.window, tenant: r.tenant}, w.version, func() (cached, error) {
		metrics, err := r.allMetrics(ctx, w)
		if err != nil {
			return nil, err
		}
		set, size := &windowSet{ids: map[format.SeriesID]struct{}{}, metrics: len(metrics)}, r.newBudget()
		for _, m := range metrics {
			err := r.eachLabelsRow(ctx, w.window, m, true, func(row engine.Row) error {
				var id format.SeriesID
				copy(id[:], row.Clustering[format.SeriesField(rollup.Raw)].Text)
				set.ids[id] = struct{}{}
				return size.charge(idBytes)
			})
			if err != nil {
				return nil, err
			}
		}
		return set, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*windowSet), nil
}
