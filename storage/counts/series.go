package counts

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/meter"
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
// the error wraps meter.ErrQueryTooLarge. Unsealed series are counted in several passes if they have many values,
// and counts of many are reused, see countUnsealed. Labels that can't be read are left out, and warned of: see WithWarnings.
func (s *Statistics) CountSeries(ctx context.Context, q SeriesQuery) (SeriesCounts, error) {
	if q.Unsealed {
		return s.countOpen(ctx, q)
	}
	told := &toldOnce{warn: damage.Warnings(ctx)}
	r, err := s.env.NewReader(ctx, q.Tenant, told.add)
	if err != nil {
		return SeriesCounts{}, err
	}
	w, err := r.Window(ctx, q.Window)
	if err != nil || w.Version == 0 {
		return SeriesCounts{}, err
	}
	classes, others, err := s.env.Classes(ctx, q.Tenant, q.Window)
	if err != nil {
		return SeriesCounts{}, err
	}
	state := stateOf(w.Version, others)
	if c := s.Stored(ctx, q.Tenant, q.Window, state); c != nil {
		if answer, ok := answerFrom(c, q); ok {
			return answer, nil
		}
	}
	key := cache.EntryKey{Kind: cache.KindCounts, Window: q.Window, Tenant: q.Tenant, Text: fmt.Sprintf("%s\x00%s\x00%d", q.Metric, q.Label, q.Limit)}
	v, err := s.env.Cache.Get(ctx, key, state, func(ctx context.Context) (cache.EntryValue, error) {
		counts, err := s.countSealed(ctx, r, w, classes, q)
		return cachedSeriesCounts{counts, told.list}, err
	})
	if err != nil {
		return SeriesCounts{}, err
	}
	counted := v.(cachedSeriesCounts)
	for _, err := range counted.left {
		told.add(err)
	}
	return counted.SeriesCounts, nil
}

// toldOnce passes warnings on, each once, and keeps them.
type toldOnce struct {
	warn func(error) // nil: nobody asks for them
	list []error
}

func (t *toldOnce) add(err error) {
	if slices.ContainsFunc(t.list, func(known error) bool { return known.Error() == err.Error() }) {
		return
	}
	t.list = append(t.list, err)
	if t.warn != nil {
		t.warn(err)
	}
}

// countOpen counts unsealed series.
func (s *Statistics) countOpen(ctx context.Context, q SeriesQuery) (SeriesCounts, error) {
	v, err := s.countUnsealed(ctx, q, q.Metric+"\x00"+q.Label, func(ctx context.Context) (cache.EntryValue, error) {
		var c headCount
		err := c.count(ctx, s, q)
		return c.seriesCounts(q), err
	})
	if err != nil {
		return SeriesCounts{}, err
	}
	counted := v.(cachedSeriesCounts)
	if warn := damage.Warnings(ctx); warn != nil {
		for _, err := range counted.left {
			warn(err)
		}
	}
	return counted.SeriesCounts, nil
}

// seriesCounts returns the counts that q asks for.
func (c *headCount) seriesCounts(q SeriesQuery) (out cachedSeriesCounts) {
	out.SeriesCounts = SeriesCounts{Series: c.series, AllMetrics: c.allMetrics, AllLabels: len(c.labels.found), Metrics: c.metrics.sorted()}
	names := greatest{limit: q.Limit}
	for name, found := range c.labels.found {
		names.add(name, found.values)
	}
	out.Labels = names.sorted()
	if found := c.labels.found[q.Label]; found != nil {
		out.Values = found.greatest.sorted()
	}
	if c.labels.tooMany {
		out.left = append(out.left, fmt.Errorf("storage: more than %d label names; the others aren't counted", maxCountedLabels))
	}
	return out
}

// cachedSeriesCounts are what the cache holds: counts, and warnings of what they lack.
type cachedSeriesCounts struct {
	SeriesCounts

	left []error
}

func (c cachedSeriesCounts) Bytes() int64 {
	return int64(len(c.left))*gapBytes + bytesOfCounts(c.Metrics, c.Labels, c.Values)
}

// bytesOfCounts is the memory that lists of counts take, about.
func bytesOfCounts(lists ...[]Count) (n int64) {
	for _, list := range lists {
		for _, one := range list {
			n += int64(len(one.Name)) + textBytes + 8
		}
	}
	return n
}

// textBytes is what a text takes besides its characters.
const textBytes = 16

// gapBytes is what a warning takes in memory, about.
const gapBytes = 500

func (s *Statistics) countSealed(ctx context.Context, r WindowReader, w WindowVersion, classes []int64, q SeriesQuery) (SeriesCounts, error) {
	metrics, err := r.Metrics(ctx, w)
	if err != nil {
		return SeriesCounts{}, err
	}
	c, builder, walk := s.newSeriesCounter(q), labels.NewScratchBuilder(16), walkOf(r, q.Tenant, w.Window, classes)
	for _, m := range metrics {
		if q.Metric != "" && m.Name != q.Metric {
			continue
		}
		err := walk.all(ctx, m, false, func(row engine.Row) error {
			ls, err := format.ParseLabels(row.Value, m.Name, &builder)
			if err != nil {
				r.CorruptLabels(w.Window, m.Name, row.Clustering[2].Text, err)
				return nil
			}
			return c.add(ls)
		})
		if err != nil {
			return SeriesCounts{}, err
		}
	}
	return c.counts(), nil
}

// walkOf returns a walk over a window. Rows that can't be read are warned of, and left out.
func walkOf(r WindowReader, tenant string, window int64, classes []int64) *seriesWalk {
	return &seriesWalk{tenant: tenant, window: window, classes: classes, scan: r.Scan, between: func() {}}
}

// seriesCounter counts one series after the other.
type seriesCounter struct {
	q       SeriesQuery
	series  int64
	metrics map[string]uint64
	values  map[string]map[string]uint64
	budget  meter.ReadBudget
}

func (s *Statistics) newSeriesCounter(q SeriesQuery) *seriesCounter {
	return &seriesCounter{q: q, metrics: map[string]uint64{}, values: map[string]map[string]uint64{}, budget: meter.ReadBudget{Limit: s.env.QueryBytes}}
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
			if full := c.budget.Charge(len(l.Value) + valueBytes); full != nil {
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
