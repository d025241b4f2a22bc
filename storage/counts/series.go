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
	// Window is a raw window. Unsealed selects all unsealed series in the head instead.
	Window   int64
	Unsealed bool
	// Metric selects the series of one metric; "" selects all.
	Metric string
	// Label selects the label whose values are counted.
	Label string
	// Limit is the maximum length of each list.
	Limit int
}

// SeriesCounts counts series by their labels. Each list has the largest counts in descending order.
type SeriesCounts struct {
	Series int64
	// Metrics counts the series of each metric, Labels the different values of each label, and Values the series with
	// each value of the selected label.
	Metrics, Labels, Values []Count
	// AllMetrics and AllLabels are the total numbers of metrics and labels.
	AllMetrics, AllLabels int
}

// CountSeries counts a tenant's series in a window, or in the head. For a window it reads the stored counts, unless the
// window was written to since, the query selects a metric, or the query needs more counts than are stored. In these
// cases it reads labels. Its memory is limited like a query's: above the limit, it returns an error that wraps
// meter.ErrQueryTooLarge. Unsealed series with many values are counted in multiple passes, and counts of many unsealed
// series may come from an earlier call, see countUnsealed. Unreadable labels are skipped and reported: see
// damage.WithWarnings.
func (s *Statistics) CountSeries(ctx context.Context, q SeriesQuery) (SeriesCounts, error) {
	if q.Unsealed {
		return s.countHead(ctx, q)
	}
	told := &uniqueWarnings{warn: damage.Warnings(ctx)}
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
	if c := s.StoredCounts(ctx, q.Tenant, q.Window, state); c != nil {
		if answer, ok := answerFromCounts(c, q); ok {
			return answer, nil
		}
	}
	key := cache.EntryKey{
		Kind: cache.KindCounts, Window: q.Window, Tenant: q.Tenant,
		Text: fmt.Sprintf("%s\x00%s\x00%d", q.Metric, q.Label, q.Limit),
	}
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

// uniqueWarnings reports each warning once, and keeps all of them.
type uniqueWarnings struct {
	warn func(error) // nil if warnings are only kept
	list []error
}

func (t *uniqueWarnings) add(err error) {
	if slices.ContainsFunc(t.list, func(known error) bool { return known.Error() == err.Error() }) {
		return
	}
	t.list = append(t.list, err)
	if t.warn != nil {
		t.warn(err)
	}
}

// countHead counts unsealed series.
func (s *Statistics) countHead(ctx context.Context, q SeriesQuery) (SeriesCounts, error) {
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

// seriesCounts returns the counts that q requests.
func (c *headCount) seriesCounts(q SeriesQuery) (out cachedSeriesCounts) {
	out.SeriesCounts = SeriesCounts{
		Series: c.series, AllMetrics: c.allMetrics, AllLabels: len(c.labels.found), Metrics: c.metrics.sorted(),
	}
	names := largestCounts{limit: q.Limit}
	for name, found := range c.labels.found {
		names.add(name, found.values)
	}
	out.Labels = names.sorted()
	if found := c.labels.found[q.Label]; found != nil {
		out.Values = found.greatest.sorted()
	}
	if c.labels.tooMany {
		out.left = append(out.left, fmt.Errorf("storage: more than %d label names; the others aren't counted",
			maxCountedLabels))
	}
	return out
}

// cachedSeriesCounts is a cache entry: counts, and warnings about rows that aren't included in them.
type cachedSeriesCounts struct {
	SeriesCounts

	left []error
}

func (c cachedSeriesCounts) Bytes() int64 {
	return int64(len(c.left))*gapBytes + bytesOfCounts(c.Metrics, c.Labels, c.Values)
}

// bytesOfCounts returns the approximate size of lists of counts.
func bytesOfCounts(lists ...[]Count) (n int64) {
	for _, list := range lists {
		for _, one := range list {
			n += int64(len(one.Name)) + textBytes + 8
		}
	}
	return n
}

// textBytes is the size of a string header.
const textBytes = 16

// gapBytes is the approximate size of a warning.
const gapBytes = 500

func (s *Statistics) countSealed(
	ctx context.Context, r WindowReader, w WindowVersion, classes []int64, q SeriesQuery,
) (SeriesCounts, error) {
	metrics, err := r.Metrics(ctx, w)
	if err != nil {
		return SeriesCounts{}, err
	}
	c, builder := s.newSeriesCounter(q), labels.NewScratchBuilder(16)
	walk := newLenientWalk(r, q.Tenant, w.Window, classes)
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

// newLenientWalk returns a walk over a window. The walk skips unreadable rows and reports them as warnings.
func newLenientWalk(r WindowReader, tenant string, window int64, classes []int64) *seriesWalk {
	return &seriesWalk{tenant: tenant, window: window, classes: classes, scan: r.Scan, between: func() {}}
}

// seriesCounter counts series that are added one by one.
type seriesCounter struct {
	q       SeriesQuery
	series  int64
	metrics map[string]uint64
	values  map[string]map[string]uint64
	budget  meter.ReadBudget
}

func (s *Statistics) newSeriesCounter(q SeriesQuery) *seriesCounter {
	return &seriesCounter{
		q: q, metrics: map[string]uint64{}, values: map[string]map[string]uint64{},
		budget: meter.ReadBudget{Limit: s.env.QueryBytes},
	}
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
			// A value is a substring of the text of all labels of its series, so the map may keep that whole text in
			// memory.
			if full := c.budget.Charge(len(l.Value) + valueBytes); full != nil {
				err = full
			}
		}
	})
	return err
}

// valueBytes is the approximate memory for a value in a seriesCounter, in addition to its text.
const valueBytes = 200

func (c *seriesCounter) counts() SeriesCounts {
	out := SeriesCounts{Series: c.series, AllMetrics: len(c.metrics), AllLabels: len(c.values)}
	empty := largestCounts{limit: c.q.Limit}
	metrics, names, values := empty, empty, empty
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
