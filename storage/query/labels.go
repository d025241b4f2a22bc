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

// LabelNames lists the label names of the series that match the query, sorted. Without matchers it lists the names of
// all series. If a sealed window overlaps the range, the series of the whole window count as being in the range. With a
// Limit, the search stops once it has found enough names, so the list may contain any of the matching names.
func (q *Querier) LabelNames(ctx context.Context, query Query) ([]string, error) {
	return q.searchTexts(ctx, query, textSearch{
		kind: cache.KindNames, catalog: format.CatalogLabel,
		ofOpen: func(t *textSet, ls labels.Labels) {
			ls.Range(func(l labels.Label) { t.addOne(l.Name) })
		},
		ofSealed: func(_ context.Context, m *metricSeries, positions []uint32) []string {
			return m.set.LabelNames(positions)
		},
	})
}

// LabelValues lists the values of a label, sorted. Range, matchers and Limit apply as in LabelNames.
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
	return q.searchTexts(ctx, query, search)
}

// textSearch contains the differences between a search for label names and a search for label values.
type textSearch struct {
	// kind is the kind of the cache entries. catalog and label identify the partition of the catalog.
	kind     uint8
	catalog  int64
	label    string
	ofOpen   func(*textSet, labels.Labels)
	ofSealed func(ctx context.Context, m *metricSeries, positions []uint32) []string
}

func (q *Querier) searchTexts(ctx context.Context, query Query, search textSearch) ([]string, error) {
	query.LabelsOnly = true
	r, err := q.openRequest(ctx, query)
	if r == nil {
		return nil, err
	}
	t := &textSet{r: r, ctx: ctx, limit: query.Limit, seen: map[string]struct{}{}, list: []string{}}
	// Invariant I4: the head is read first, then the commit records, then the rows.
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
		err = t.addCatalogs(ctx, windows, search)
	} else {
		err = t.addMatching(ctx, windows, search)
	}
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	return t.sorted()
}

// addCatalogs adds the names or values in the catalogs of the windows.
func (t *textSet) addCatalogs(ctx context.Context, windows []sealedWindow, search textSearch) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ReadWorkers)
	for _, w := range windows {
		g.Go(panics.WrapError("listing labels", func() error {
			if search.catalog == format.CatalogMetric { // Selectors use the same cache entry.
				metrics, err := t.r.allMetrics(ctx, w)
				for _, m := range metrics {
					if err := t.add(m.name); err != nil {
						return err
					}
				}
				return err
			}
			list, err := search.readCatalog(ctx, t.r.rowReader, w)
			if err == nil {
				err = t.add(list...)
			}
			return err
		}))
	}
	return g.Wait()
}

// textList is a sorted list of names or values.
type textList []string

func (l textList) Bytes() (n int64) {
	for _, s := range l {
		n += int64(len(s)) + textBytes
	}
	return n
}

// textsBytes is the memory metered for a label name or value, in addition to its bytes. It covers the entries in the
// set and in the list.
const textsBytes = 80

// textBytes is the size of a string header.
const textBytes = 16

// readCatalog returns the names or values in the catalog of a window.
func (search *textSearch) readCatalog(ctx context.Context, r *rowReader, w sealedWindow) (textList, error) {
	key := cache.EntryKey{Kind: search.kind, Window: w.window, Tenant: r.tenant, Text: search.label}
	v, err := r.env.Cache.Get(ctx, key, w.version, func(ctx context.Context) (cache.EntryValue, error) {
		list, size := textList{}, r.newBudget(ctx)
		err := r.Scan(ctx, engine.Range{
			Table: engine.Catalog, Partition: format.CatalogPartition(w.window, r.tenant, search.catalog, search.label),
			KeysOnly: true,
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

// addMatching adds the names or values of the sealed series that match.
func (t *textSet) addMatching(ctx context.Context, windows []sealedWindow, search textSearch) error {
	find := seriesFinder{t.r}
	list, err := find.windowMetrics(ctx, windows)
	if err != nil {
		return err
	}
	if search.catalog == format.CatalogMetric {
		return t.addMetrics(ctx, find, list)
	}
	return find.eachMatch(ctx, list, func(_ int, m *metricSeries, positions []uint32) error {
		return t.add(search.ofSealed(ctx, m, positions)...)
	})
}

// addMetrics adds the names of metrics with matching series, in order.
func (t *textSet) addMetrics(ctx context.Context, find seriesFinder, list []windowMetric) error {
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

// seenBytes is the approximate memory for a string in a textSet, in addition to its bytes.
const seenBytes = 64

// textSet is a set of label names or values. It may be used by multiple goroutines.
type textSet struct {
	r     *request
	ctx   context.Context
	limit int // 0: no limit
	// offered is the number of strings passed to the set, including duplicates.
	offered int

	mu   sync.Mutex
	seen map[string]struct{}
	list []string // the distinct texts, in order of arrival
	err  error
	// unmetered is the number of bytes that aren't metered yet.
	unmetered int64
}

// errFull means that the set has reached its limit, or that a string exceeded the query's budget.
var errFull = errors.New("storage: the list is full")

// add adds strings. It returns errFull if the set accepts no more strings.
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

// limitedTexts and limitedOffered bound a search with a limit. Once the search has found as many strings as the limit,
// it stops after limitedTexts different strings, or after limitedOffered strings including duplicates. A search that
// ends before these bounds returns the first strings in order, as Prometheus does. Otherwise it returns any of the
// matching strings.
const (
	limitedTexts   = 1024
	limitedOffered = 1 << 20
)

// isFull reports whether the set accepts no more strings. The caller must hold the lock, unless no other goroutine uses
// the set.
func (t *textSet) isFull() bool {
	return t.err != nil ||
		t.limit > 0 && len(t.list) >= t.limit && (len(t.list) >= limitedTexts || t.offered >= limitedOffered)
}

// addOne adds a string. The caller must hold the lock, unless no other goroutine uses the set.
func (t *textSet) addOne(s string) {
	if t.addLast(s) {
		t.seen[s] = struct{}{}
	}
}

// addLast is like addOne, for a string that won't be added again. It reports whether the string was added.
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

// charge meters a string before it is stored. It updates the meter only once per meter.AtOnce bytes.
func (t *textSet) charge(s string) error {
	if t.unmetered += int64(len(s)) + textsBytes; t.unmetered >= meter.AtOnce {
		if err := meter.Grow(t.ctx, t.unmetered); err != nil {
			return err
		}
		t.unmetered = 0
	}
	return t.r.budget.Charge(len(s) + seenBytes)
}

// sorted returns the strings in order, up to the limit.
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
