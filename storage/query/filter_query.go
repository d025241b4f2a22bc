package query

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/panics"
)

// An index of all series of a metric in a window can look up any matchers, but building it takes long if there are many
// series. Matchers with known values are looked up in the filters of labels pages instead, as long as this costs less:
//
//	index in the cache ─────────────────────► look up
//	few pages, or no filters ───────────────► build the index ─► look up
//	else ─► filters ─► pages that may match ─► an index of the series that match, cached for these matchers
//
// The index of all series is built once the total cost of look-ups by filters reaches about the cost of building it, or
// if a look-up would open half of the pages. It is built only if it is small enough to stay in the cache with other
// entries.

const (
	// minFilterPages is the minimum number of labels pages of a metric in a window for which filters are used.
	minFilterPages = 8
	// indexPages is the approximate number of pages that can be opened in the time needed to index one page.
	indexPages = 8
	// filtersOfPage is the number of filters that can be read in the time needed to open one page, rounded down.
	filtersOfPage = 16
	// indexedBytes is the approximate size of a series in an index.
	indexedBytes = 200
	// indexShare limits an index to 1/indexShare of the cache, if filters can be used instead.
	indexShare = 4
)

// errIndexCheaper means that building the index of all series costs less than using filters.
var errIndexCheaper = errors.New("storage: the index of all series costs less")

// filterQuery holds the conditions on the labels of a metric's series.
type filterQuery struct {
	conditions []filterCondition
	text       string // text of the matchers, for the cache key
}

// filterCondition is a matcher with the values that it accepts. The values are nil if they are unknown.
type filterCondition struct {
	*labels.Matcher

	values []string
}

// selector returns a selector of the series that meet all conditions. Once the context is done, it selects no more
// series.
func (q *filterQuery) selector(ctx context.Context) *page.Selector {
	x := index.NewMatching(ctx)
	conditions := make([]page.LabelCondition, len(q.conditions))
	for i, c := range q.conditions {
		conditions[i] = page.LabelCondition{
			Name: c.Name, Values: c.values, Matches: func(value string) bool { return x.Matches(c.Matcher, value) },
		}
	}
	return page.NewSelector(conditions)
}

// newFilterQuery returns the conditions for the matchers. It returns nil if filters can't be used, because no matcher
// has known values.
func newFilterQuery(matchers []*labels.Matcher) *filterQuery {
	s := &filterQuery{}
	names := false
	var text []byte
	for _, m := range matchers {
		if m.Name == labels.MetricName {
			continue
		}
		c := filterCondition{Matcher: m}
		switch m.Type {
		case labels.MatchEqual:
			if m.Value != "" {
				c.values = []string{m.Value}
			}
		case labels.MatchRegexp:
			if set := m.SetMatches(); !slices.Contains(set, "") {
				c.values = set
			}
		}
		s.conditions = append(s.conditions, c)
		names = names || len(c.values) > 0
		text = binary.AppendUvarint(append(text, byte(m.Type)), uint64(len(m.Name)))
		text = binary.AppendUvarint(append(text, m.Name...), uint64(len(m.Value)))
		text = append(text, m.Value...)
	}
	if !names {
		return nil
	}
	s.text = string(text)
	return s
}

// openedPages counts the pages of a metric in a window that were opened by look-ups with filters. Reading a filter
// counts as a fraction of a page.
type openedPages struct{ atomic.Int64 }

func (*openedPages) Bytes() int64 { return 8 }

// matchingSeries returns series of a window's metric. The result contains all matching series and possibly others.
func (r seriesFinder) matchingSeries(ctx context.Context, wm windowMetric, q *matchingQuery) (*metricSeries, error) {
	c := r
	if m := c.cachedSeries(&wm); m != nil {
		return m, nil
	}
	if q.filterQuery() != nil {
		m, err := c.filteredSeries(ctx, &wm, q.filterQuery())
		if !errors.Is(err, errIndexCheaper) {
			return m, err
		}
	}
	return c.series(ctx, wm.window, wm.metric, wm.shards)
}

// cachedSeries returns all series of a window's metric if their index is cached. Otherwise it returns nil.
func (r *rowReader) cachedSeries(wm *windowMetric) *metricSeries {
	v, ok := r.env.Cache.GetCached(r.seriesKey(wm), wm.window.version)
	if !ok {
		return nil
	}
	m := v.(*metricSeries)
	r.reportCorruptRows(m, false)
	return m
}

// seriesKey returns the cache key of the index of a window's metric.
func (r *rowReader) seriesKey(wm *windowMetric) cache.EntryKey {
	return cache.EntryKey{Kind: cache.KindSeries, Window: wm.window.window, Tenant: r.tenant, Text: wm.metric}
}

// filteredSeries returns the matching series, or errIndexCheaper. In both cases it may set the number of shards in wm.
func (r *rowReader) filteredSeries(ctx context.Context, wm *windowMetric, q *filterQuery) (*metricSeries, error) {
	w := wm.window
	loaded := false
	key := cache.EntryKey{Kind: cache.KindSought, Window: w.window, Tenant: r.tenant, Text: wm.metric + "\x00" + q.text}
	v, err := r.env.Cache.Get(ctx, key, w.version, func(ctx context.Context) (cache.EntryValue, error) {
		loaded = true
		return r.loadFiltered(ctx, wm, q)
	})
	if err != nil {
		return nil, err
	}
	m := v.(*metricSeries)
	r.reportCorruptRows(m, loaded)
	return m, nil
}

// loadFiltered reads the series that meet the conditions of q, from the pages that may match according to their
// filters.
func (r *rowReader) loadFiltered(ctx context.Context, wm *windowMetric, q *filterQuery) (cache.EntryValue, error) {
	l, err := r.newSeriesLoad(ctx, wm.window.window, wm.metric, wm.shards)
	if err != nil {
		return nil, err
	}
	wm.shards = l.shards
	places := slices.Collect(format.ClassShards(l.classes, l.shards))
	found, selector := make([]*paged.Candidates, len(places)), q.selector(ctx)
	err = eachPlace(ctx, places, func(ctx context.Context, i int, at format.ClassShard) (err error) {
		rows := l.rows(at)
		found[i], err = r.env.Rows.Candidates(ctx, paged.LabelsQuery{
			Table: rows.Table, Partition: rows.Partition, Selector: selector,
			BadFilter: func(err error) { r.env.Damage.RecordOnce(rows.Table, err) },
		})
		if err == nil && found[i] == nil {
			err = errIndexCheaper
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	all, err := r.chargeFilters(ctx, wm, found)
	if err != nil {
		return nil, err
	}
	match, held := make([][]paged.LabelsRow, len(places)), r.newBudget(ctx)
	err = eachPlace(ctx, places, func(ctx context.Context, i int, at format.ClassShard) (err error) {
		rows := l.rows(at)
		match[i], err = found[i].Rows(ctx, held.Charge, func(d engine.Damage) { r.reportMissed(&rows, d) })
		return err
	})
	if err != nil {
		return nil, err
	}
	l.m.located = map[format.ClassShard]*paged.Located{}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, at := range places {
		for _, row := range match[i] {
			if err := l.addLabels(row.ID, row.Value); err != nil {
				return nil, err
			}
		}
		l.setPlaces(at)
		l.m.located[at] = found[i].Located()
	}
	l.finish()
	l.m.estimatePositions(all)
	return &l.m, nil
}

// chargeFilters adds the cost of a look-up by filters to the cost of earlier look-ups, and returns the approximate
// number of series of the metric. It returns errIndexCheaper if the metric has fewer than minFilterPages pages. It also
// returns errIndexCheaper if an index of all series is small enough to stay in the cache and one of two conditions is
// met: earlier look-ups have cost as much as building the index, or this look-up would open more than half of the
// pages.
func (r *rowReader) chargeFilters(
	ctx context.Context, wm *windowMetric, found []*paged.Candidates,
) (series int64, err error) {
	pages, all := 0, 0
	for _, c := range found {
		pages, all, series = pages+c.Pages(), all+c.AllPages, series+int64(c.AllSeries)
	}
	if all < minFilterPages {
		return 0, errIndexCheaper
	}
	v, err := r.env.Cache.Get(
		ctx, cache.EntryKey{Kind: cache.KindOpened, Window: wm.window.window, Tenant: r.tenant, Text: wm.metric},
		wm.window.version, func(ctx context.Context) (cache.EntryValue, error) { return &openedPages{}, nil },
	)
	if err != nil {
		return 0, err
	}
	before := v.(*openedPages).Add(int64(pages+all/filtersOfPage)) - int64(pages)
	if fits := series*indexedBytes <= r.env.Cache.Capacity()/indexShare; fits &&
		(before > int64(indexPages*all) || 2*pages > all) {
		return 0, errIndexCheaper
	}
	return series, nil
}

// placeWorkers is the number of places of a metric that are read concurrently.
const placeWorkers = 4

// eachPlace calls do concurrently for each place (a class and a shard), with its index.
func eachPlace(
	ctx context.Context, places []format.ClassShard, do func(ctx context.Context, i int, at format.ClassShard) error,
) error {
	if len(places) == 1 {
		return do(ctx, 0, places[0])
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(placeWorkers)
	for i, at := range places {
		g.Go(panics.WrapError("reading", func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i, at)
		}))
	}
	return g.Wait()
}

// estimatePositions estimates the positions of the series among all series of the metric from their ids, which are
// hashes. all is the number of all series.
func (m *metricSeries) estimatePositions(all int64) {
	m.at, m.all = make([]uint32, len(m.ids)), int(all)
	next := uint32(0)
	for i, id := range m.ids {
		at := uint32(min(uint64(binary.BigEndian.Uint32(id[:]))*uint64(all)>>32, math.MaxUint32/2))
		m.at[i] = max(at, next)
		next = m.at[i] + 1
	}
}
