package storage

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
)

// metricSeries are the series of a metric in a window, in the order of their ids. A series stands here
// twice if it has rows in two shards or classes.
type metricSeries struct {
	set    *index.Set
	labels []labels.Labels
	ids    []format.SeriesID
	places []format.ClassShard // nil: all are in place 0
	// bad are the rows that could not be read, as many as are kept.
	bad []*CorruptRowError
}

const (
	// maxBadRows bounds how many corrupt rows of a metric each query is warned of.
	maxBadRows = 10
	// seriesBytes is what a series takes in memory besides its labels.
	seriesBytes = 64
)

func (m *metricSeries) bytes() int64 {
	return m.set.Bytes() + int64(len(m.ids)*16+len(m.places)*2+len(m.bad)*200)
}

// Len, Less and Swap let sort put the series of several shards in one order.
func (m *metricSeries) Len() int           { return len(m.ids) }
func (m *metricSeries) Less(i, j int) bool { return bytes.Compare(m.ids[i][:], m.ids[j][:]) < 0 }
func (m *metricSeries) Swap(i, j int) {
	m.ids[i], m.ids[j] = m.ids[j], m.ids[i]
	m.labels[i], m.labels[j] = m.labels[j], m.labels[i]
	m.places[i], m.places[j] = m.places[j], m.places[i]
}

// series returns the series of a window's metric. shards is 0 where the catalog wasn't read yet.
func (r catalogReader) series(ctx context.Context, w *sealedWindow, metric string, shards int64) (*metricSeries, error) {
	loaded := false
	key := cacheKey{kind: cachedSeries, window: w.window, tenant: r.tenant, text: metric}
	v, err := r.s.cache.get(ctx, key, w.version, func() (cached, error) {
		loaded = true
		return r.loadSeries(ctx, w.window, metric, shards)
	})
	if err != nil {
		return nil, err
	}
	m := v.(*metricSeries)
	for _, bad := range m.bad {
		if loaded {
			r.s.corrupt(bad.Table, bad)
		}
		r.tell(bad)
	}
	return m, nil
}

func (r catalogReader) loadSeries(ctx context.Context, window int64, metric string, shards int64) (*metricSeries, error) {
	if shards == 0 {
		var err error
		if shards, err = r.shardsOf(ctx, window, metric); err != nil {
			return nil, err
		}
	}
	l := &seriesLoad{r: r, window: window, metric: metric, budget: r.newBudget(), builder: labels.NewScratchBuilder(16)}
	single := shards == 1 && r.s.classes.count() == 1
	for at := range r.s.places(shards) {
		err := r.scan(ctx, engine.Range{
			Table: format.TableOf(format.ResolutionOf(window)), Partition: format.SeriesPartition(window, r.tenant, metric, at),
			From: engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)},
		}, func(row engine.Row) error { return l.add(row) })
		if err != nil {
			return nil, err
		}
		for !single && len(l.m.places) < len(l.m.ids) {
			l.m.places = append(l.m.places, at)
		}
	}
	if slices.ContainsFunc(l.m.places, func(at format.ClassShard) bool { return at != 0 }) {
		sort.Stable(&l.m)
	} else {
		l.m.places = nil
	}
	l.m.set = index.New(l.m.labels)
	return &l.m, nil
}

// shardsOf reads how many shards a metric has in a window.
func (r catalogReader) shardsOf(ctx context.Context, window int64, metric string) (shards int64, err error) {
	value, err := r.s.shardsValue(ctx, window, r.tenant, metric, r.s.noteGap)
	if err != nil || value == nil {
		return 1, err
	}
	return r.shards(window, metric, value), nil
}

// seriesLoad reads labels rows.
type seriesLoad struct {
	r       catalogReader
	window  int64
	metric  string
	m       metricSeries
	budget  *budget
	builder labels.ScratchBuilder
	text    []byte
}

var errOtherSeries = errors.New("storage: the labels are those of another series")

func (l *seriesLoad) add(row engine.Row) error {
	var id format.SeriesID
	copy(id[:], row.Clustering[format.SeriesField(format.ResolutionOf(l.window))].Text)
	ls, err := format.ParseLabels(row.Value, l.metric, &l.builder)
	if err == nil {
		l.text = format.AppendSeriesSet(l.text[:0], ls)
		if format.SeriesIDOfSet(l.text) != id {
			err = errOtherSeries
		}
	}
	if err != nil {
		bad := &CorruptRowError{Table: format.TableOf(format.ResolutionOf(l.window)), Window: l.window, Tenant: l.r.tenant, Metric: l.metric, Series: id.String(), Err: err}
		if len(l.m.bad) < maxBadRows {
			l.m.bad = append(l.m.bad, bad)
		}
		return nil
	}
	l.m.ids = append(l.m.ids, id)
	l.m.labels = append(l.m.labels, ls)
	return l.budget.charge(int(ls.ByteSize()) + seriesBytes)
}
