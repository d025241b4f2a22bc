package query

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/panics"
)

// LabelNames lists the names of labels of the series that match (no matchers: of all) in the range, sorted.
// Sealed windows are taken whole. With a Limit, any of the names are returned: no more are searched once there are that many.
func (q *Querier) LabelNames(ctx context.Context, query Query) ([]string, error) {
	return q.texts(ctx, query, textSearch{
		kind: cache.KindNames, catalog: format.CatalogLabel,
		ofOpen: func(t *textSet, ls labels.Labels) {
			ls.Range(func(l labels.Label) { t.addOne(l.Name) })
		},
		ofSealed: func(_ context.Context, m *metricSeries, positions []uint32) []string {
			return m.set.LabelNames(positions)
		},
	})
}

// LabelValues lists the values of a label, sorted, likewise.
func (q *Querier) LabelValues(ctx context.Context, name string, query Query) ([]string, error) {
	search := textSearch{
		kind: cache.KindValues, catalog: format.CatalogValue, label: name,
		ofOpen: func(t *textSet, ls labels.Labels) {
			if v := ls.Get(name); v != "" {
				t.addOne(v)
			}
		},
		ofSealed: func(ctx context.Context, m *metricSeries, positions []uint32) []string {
			return m.set.LabelValues(ctx, name, positions)
		},
	}
	if name == labels.MetricName {
		search.catalog, search.label = format.CatalogMetric, ""
	}
	return q.texts(ctx, query, search)
}

// textSearch is how a search for the names of labels differs from one for the values of a label.
type textSearch struct {
	// kind is that of cache entries; catalog and label name the catalog's partition.
	kind     uint8
	catalog  int64
	label    string
	ofOpen   func(*textSet, labels.Labels)
	ofSealed func(ctx context.Context, m *metricSeries, positions []uint32) []string
}

func (q *Querier) texts(ctx context.Context, query Query, search textSearch) ([]string, error) {
	query.LabelsOnly = true
	r, err := q.openRequest(ctx, query)
	if r == nil {
		return nil, err
	}
	t := &textSet{r: r, ctx: ctx, limit: query.Limit, seen: map[string]struct{}{}, list: []string{}}
	// Invariant I4: first the head, then the marks, then the rows.
	for series := range q.env.Head.Select(ctx, query.Tenant, query.Matchers, r.minT, r.maxT, true) {
		if search.ofOpen(t, series.Labels()); t.isFull() {
			return t.sorted()
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	windows, err := windowFinder{r}.windowsOfNames(ctx)
	if err != nil {
		return nil, err
	}
	if len(query.Matchers) == 0 {
		err = t.ofCatalogs(ctx, windows, search)
	} else {
		err = t.ofMatching(ctx, windows, search)
	}
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	return t.sorted()
}

// ofCatalogs adds what the catalogs of the windows list.
func (t *textSet) ofCatalogs(ctx context.Context, windows []sealedWindow, search textSearch) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ReadWorkers)
	for _, w := range windows {
		g.Go(panics.AsError("listing labels", func() error {
			if search.catalog == format.CatalogMetric { // The same entry serves selectors.
				metrics, err := t.r.allMetrics(ctx, w)
				for _, m := range metrics {
					if err := t.add(m.name); err != nil {
						return err
					}
				}
				return err
			}
			list, err := search.list(ctx, t.r.rowReader, w)
			if err == nil {
				err = t.add(list...)
			}
			return err
		}))
	}
	return g.Wait()
}

// textList is a list of names or values, sorted.
type textList []string

func (l textList) Bytes() (n int64) {
	for _, s := range l {
		n += int64(len(s)) + textBytes
	}
	return n
}

// textsBytes is metered for a name or value of a label, in a set and in a list. Its text is added.
const textsBytes = 80

// textBytes is what a text takes besides its characters.
const textBytes = 16

// list returns what the catalog of a window lists.
func (search *textSearch) list(ctx context.Context, r *rowReader, w sealedWindow) (textList, error) {
	key := cache.EntryKey{Kind: search.kind, Window: w.window, Tenant: r.tenant, Text: search.label}
	v, err := r.env.Cache.Get(ctx, key, w.version, func(ctx context.Context) (cache.EntryValue, error) {
		list, size := textList{}, r.newBudget(ctx)
		err := r.Scan(ctx, engine.Range{
			Table: engine.Catalog, Partition: format.CatalogPartition(w.window, r.tenant, search.catalog, search.label), KeysOnly: true,
		}, func(row engine.Row) error {
			list = append(list, strings.Clone(row.Clustering[0].Text))
			return size.Charge(len(row.Clustering[0].Text) + textBytes)
		})
		return list, err
	})
	if err != nil {
		return nil, err
	}
	return v.(textList), nil
}

// ofMatching adds what the sealed series that match have.
func (t *textSet) ofMatching(ctx context.Context, windows []sealedWindow, search textSearch) error {
	find := seriesFinder{t.r}
	list, err := find.windowMetrics(ctx, windows)
	if err != nil {
		return err
	}
	if search.catalog == format.CatalogMetric {
		return t.ofMetrics(ctx, find, list)
	}
	return find.eachMatch(ctx, list, func(_ int, m *metricSeries, positions []uint32) error {
		return t.add(search.ofSealed(ctx, m, positions)...)
	})
}

// ofMetrics adds the names of the metrics that have series which match. They come in order.
func (t *textSet) ofMetrics(ctx context.Context, find seriesFinder, list []windowMetric) error {
	matches := make([]bool, len(list))
	err := find.eachMatch(ctx, list, func(at int, _ *metricSeries, _ []uint32) error {
		matches[at] = true
		return nil
	})
	if err != nil {
		return err
	}
	last := ""
	for at, ok := range matches {
		if name := list[at].metric; ok && name != last {
			t.addLast(name)
			last = name
		}
	}
	return nil
}

// seenBytes is what a text takes in a textSet besides its characters, about.
const seenBytes = 64

// textSet collects texts from many goroutines.
type textSet struct {
	r     *request
	ctx   context.Context
	limit int // 0: none
	// offered is how many texts were offered, those seen before included.
	offered int

	mu   sync.Mutex
	seen map[string]struct{}
	list []string // those seen, in the order in which they came
	err  error
	// unmetered are bytes of texts that the meter doesn't know yet.
	unmetered int64
}

// errFull means that there are as many texts as are wanted, or more than fit.
var errFull = errors.New("storage: the list is full")

// add returns errFull if no more are to be added.
func (t *textSet) add(texts ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range texts {
		if t.addOne(s); t.isFull() {
			return errFull
		}
	}
	return nil
}

// Bounds of the search with a limit: it ends with so many texts, or, once there are as many as are asked for, after so many were offered. Up to
// these bounds the first texts in order are returned, as Prometheus returns them; beyond, any.
const (
	limitedTexts   = 1024
	limitedOffered = 1 << 20
)

// isFull needs the lock, or to be alone.
func (t *textSet) isFull() bool {
	return t.err != nil || t.limit > 0 && len(t.list) >= t.limit && (len(t.list) >= limitedTexts || t.offered >= limitedOffered)
}

// addOne needs the lock, or to be alone.
func (t *textSet) addOne(s string) {
	if t.addLast(s) {
		t.seen[s] = struct{}{}
	}
}

// addLast is addOne for a text that isn't added again. It reports whether the text was added.
func (t *textSet) addLast(s string) bool {
	t.offered++
	if _, ok := t.seen[s]; ok || t.isFull() {
		return false
	}
	if t.err = t.charge(s); t.err != nil {
		return false
	}
	t.list = append(t.list, s)
	return true
}

// charge counts a text before it is held. Memory is metered for many texts at once.
func (t *textSet) charge(s string) error {
	if t.unmetered += int64(len(s)) + textsBytes; t.unmetered >= meter.AtOnce {
		if err := meter.Grow(t.ctx, t.unmetered); err != nil {
			return err
		}
		t.unmetered = 0
	}
	return t.r.budget.Charge(len(s) + seenBytes)
}

// sorted returns the texts.
func (t *textSet) sorted() ([]string, error) {
	if t.err != nil {
		return nil, t.err
	}
	slices.Sort(t.list)
	if t.limit > 0 && len(t.list) > t.limit {
		return slices.Clone(t.list[:t.limit]), nil
	}
	return t.list, nil
}
