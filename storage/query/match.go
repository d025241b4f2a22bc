package query

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/panics"
)

// windowMetric is a metric in one window.
type windowMetric struct {
	window *sealedWindow
	metric string
	shards int64 // 0: unknown
}

// windowMetricBytes is the size of a windowMetric with its result.
const windowMetricBytes = 160

// seriesFinder finds the series of windows that match a request.
type seriesFinder struct{ *request }

// sealedBytes is the memory metered for a sealed series: its id, the header of its labels and its part of the result.
// The bytes of the labels are metered in addition.
const sealedBytes = 160

// windowMetrics lists the metrics of the windows whose name matches the matchers of __name__, ordered by metric and
// then by window.
func (r seriesFinder) windowMetrics(ctx context.Context, windows []sealedWindow) ([]windowMetric, error) {
	var list []windowMetric
	if name, ok := r.oneMetric(); ok { // No catalog needs to be read.
		for i := range windows {
			if name != "" {
				list = append(list, windowMetric{window: &windows[i], metric: name})
			}
		}
		return list, nil
	}
	names := make([]metricNames, len(windows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ReadWorkers)
	for i, w := range windows {
		g.Go(panics.WrapError("reading", func() (err error) {
			names[i], err = r.metrics(ctx, w)
			return err
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	lists := make([][]windowMetric, len(windows))
	for i := range windows {
		if err := r.budget.Charge(len(names[i]) * windowMetricBytes); err != nil {
			return nil, err
		}
		lists[i] = make([]windowMetric, len(names[i]))
		for k, m := range names[i] {
			lists[i][k] = windowMetric{window: &windows[i], metric: m.name, shards: m.shards}
		}
	}
	return mergeByMetric(lists), nil
}

// mergeByMetric merges lists that are each sorted by metric. Entries with the same metric are in the order of the
// lists.
func mergeByMetric(lists [][]windowMetric) []windowMetric {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0]
	}
	half := len(lists) / 2
	a, b := mergeByMetric(lists[:half]), mergeByMetric(lists[half:])
	merged := make([]windowMetric, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].metric <= b[0].metric {
			merged, a = append(merged, a[0]), a[1:]
		} else {
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// eachMatch calls visit for each metric with matching series, from multiple goroutines. at is the metric's index in
// list. m contains all matching series of the metric and possibly others; positions are the indexes of the matching
// series in m.
func (r seriesFinder) eachMatch(
	outer context.Context, list []windowMetric, visit func(at int, m *metricSeries, positions []uint32) error,
) error {
	q := matchingQuery{prepared: index.Prepare(r.matchers), matchers: r.matchers}
	if len(list) == 1 {
		if err := r.match(outer, &q, list, 0, visit); err != nil {
			return err
		}
		return outer.Err()
	}
	rest, err := r.matchCached(outer, &q, list, visit)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(outer)
	var next atomic.Int64
	for range min(ReadWorkers, len(rest)) { // One goroutine per metric is slower: stacks have to grow.
		g.Go(panics.WrapError("reading", func() (err error) {
			for i := next.Add(1) - 1; i < int64(len(rest)) && err == nil && ctx.Err() == nil; i = next.Add(1) - 1 {
				err = r.match(ctx, &q, list, rest[i], visit)
			}
			return err
		}))
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return outer.Err()
}

const (
	// cachedTogether is the number of indexes that are looked up in the cache together.
	cachedTogether = 64
	// maxMatchedAlone is the maximum number of series that the caller's goroutine matches. If there are more, multiple
	// goroutines share the work.
	maxMatchedAlone = 10_000
)

// matchCached is like eachMatch, but runs in the caller's goroutine and handles only metrics whose indexes are cached.
// If few series match, this costs less than starting goroutines. It therefore handles no metrics unless a matcher can
// be answered by a look-up, and no further metrics once more than maxMatchedAlone series have matched. It returns the
// indexes in list of the metrics that it hasn't handled.
func (r seriesFinder) matchCached(
	ctx context.Context, q *matchingQuery, list []windowMetric,
	visit func(at int, m *metricSeries, positions []uint32) error,
) (rest []int, err error) {
	var held [cachedTogether]cache.EntryValue
	matched := 0
	for from := 0; from < len(list); from += cachedTogether {
		some := list[from:min(len(list), from+cachedTogether)]
		indexes := held[:len(some)]
		if q.prepared.IsLookup() && matched <= maxMatchedAlone && ctx.Err() == nil {
			r.env.Cache.GetAllCached(indexes, func(i int) (cache.EntryKey, uint64) {
				return r.seriesKey(&some[i]), some[i].window.version
			})
		} else {
			clear(indexes)
		}
		for i, v := range indexes {
			if v == nil {
				rest = append(rest, from+i)
				continue
			}
			m := v.(*metricSeries)
			r.reportCorruptRows(m, false)
			positions := r.visiblePositions(some[i].window, m, m.set.MatchPrepared(ctx, &q.prepared))
			if matched += len(positions); len(positions) == 0 {
				continue
			}
			if err := visit(from+i, m, positions); err != nil {
				return nil, err
			}
		}
	}
	return rest, nil
}

// matchingQuery holds a request's matchers, prepared for an index and for pages.
type matchingQuery struct {
	prepared index.Prepared

	matchers []*labels.Matcher
	once     sync.Once
	inPages  *filterQuery
}

// filterQuery returns the matchers in a form that filters of pages can look up. It returns nil if this isn't possible.
// It isn't called if the index of the metric is cached.
func (q *matchingQuery) filterQuery() *filterQuery {
	q.once.Do(func() { q.inPages = newFilterQuery(q.matchers) })
	return q.inPages
}

// match calls visit if the metric at index at has matching series.
func (r seriesFinder) match(
	ctx context.Context, q *matchingQuery, list []windowMetric, at int,
	visit func(at int, m *metricSeries, positions []uint32) error,
) error {
	wm := &list[at]
	m, err := r.matchingSeries(ctx, *wm, q)
	if err != nil {
		return err
	}
	positions := r.visiblePositions(wm.window, m, m.set.MatchPrepared(ctx, &q.prepared))
	if len(positions) == 0 {
		return nil
	}
	return visit(at, m, positions)
}

// metrics returns the metrics of a window whose names match the request's matchers of __name__.
func (r seriesFinder) metrics(ctx context.Context, w sealedWindow) (metricNames, error) {
	all, err := r.allMetrics(ctx, w)
	if err != nil {
		return nil, err
	}
	var byName []*labels.Matcher
	for _, m := range r.matchers {
		if m.Name == labels.MetricName {
			byName = append(byName, m)
		}
	}
	if len(byName) == 0 {
		return all, nil
	}
	var found metricNames
	x := index.NewMatching(ctx)
	for _, metric := range narrowNames(all, byName) {
		if x.MatchesName(byName, metric.name) {
			found = append(found, metric)
		}
	}
	return found, ctx.Err()
}

// narrowNames removes most of the names that can't match, according to the first matcher with an alternation or a
// prefix. It doesn't remove all of them: the caller must test the remaining names.
func narrowNames(all metricNames, byName []*labels.Matcher) metricNames {
	for _, m := range byName {
		if m.Type != labels.MatchRegexp {
			continue
		}
		if set := m.SetMatches(); len(set) > 0 {
			set = slices.Clone(set)
			slices.Sort(set)
			var found metricNames
			for _, name := range slices.Compact(set) {
				if i, ok := all.find(name); ok {
					found = append(found, all[i])
				}
			}
			return found
		}
		if prefix := m.Prefix(); prefix != "" {
			n, _ := all.find(prefix)
			rest := all[n:]
			n = 0
			for n < len(rest) && strings.HasPrefix(rest[n].name, prefix) {
				n++
			}
			return rest[:n]
		}
	}
	return all
}

// matching holds the matching series of a metric in one window, ordered by id.
type matching struct {
	window windowMetric
	ids    []format.SeriesID
	labels []labels.Labels
	places []format.ClassShard // class and shard of each series; nil: all are in place 0
	// positions are the approximate positions of the series among all series of the metric in the window, or in the
	// slots that are read.
	positions []uint32
	// located holds the positions of the series in pages, by place. It is nil if the positions are unknown.
	located map[format.ClassShard]*paged.Located
}

// matchedMemory allocates memory for matching series in blocks that metrics share, because only few series of most
// metrics match.
type matchedMemory struct {
	mu     sync.Mutex
	ids    []format.SeriesID
	labels []labels.Labels
}

// sharedSeries is the number of series in a block. Metrics with more than sharedAtMost matching series don't use shared
// blocks.
const sharedSeries, sharedAtMost = 256, 32

// allocate returns memory for n matching series.
func (a *matchedMemory) allocate(n int) ([]format.SeriesID, []labels.Labels) {
	if n > sharedAtMost {
		return make([]format.SeriesID, n), make([]labels.Labels, n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ids) < n {
		room := sharedSeries
		if a.ids == nil { // The first metric: many queries match only one.
			room = n
		}
		a.ids, a.labels = make([]format.SeriesID, room), make([]labels.Labels, room)
	}
	ids, list := a.ids[:n:n], a.labels[:n:n]
	a.ids, a.labels = a.ids[n:], a.labels[n:]
	return ids, list
}

// matchingOf returns the matching series. If some series of m don't match, it copies the matching series, so that the
// whole index can be freed.
func (r seriesFinder) matchingOf(
	ctx context.Context, w windowMetric, m *metricSeries, match spanPositions, memory *matchedMemory,
) (matching, error) {
	positions := match.positions
	if err := meter.Grow(ctx, int64(len(positions))*sealedBytes); err != nil {
		return matching{}, err
	}
	f := matching{window: w, ids: m.ids, labels: m.labels, places: m.places, positions: positions, located: m.located}
	if len(positions) < len(m.ids) {
		f.ids, f.labels = memory.allocate(len(positions))
		if m.places != nil {
			f.places = make([]format.ClassShard, len(positions))
		}
		for i, p := range positions {
			f.ids[i], f.labels[i] = m.ids[p], m.labels[p]
			if m.places != nil {
				f.places[i] = m.places[p]
			}
		}
	}
	switch {
	case match.among != nil:
		f.positions = match.among
	case m.at != nil:
		f.positions = make([]uint32, len(positions))
		for i, p := range positions {
			f.positions[i] = m.position(p)
		}
	}
	size := 0
	for _, ls := range f.labels {
		size += int(ls.ByteSize()) + seriesBytes
	}
	return f, r.budget.Charge(size)
}
