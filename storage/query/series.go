package query

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/paged"
)

// metricSeries holds the series of a metric in a window, ordered by id. A series with rows in two shards or classes is
// listed twice.
type metricSeries struct {
	set    *index.Set
	labels []labels.Labels
	ids    []format.SeriesID
	places []format.ClassShard // class and shard of each series; nil: all are in place 0
	// serial is the number of the index. The indexes created by a process are numbered from 1.
	serial uint64
	// bad contains the corrupt rows that were skipped, up to maxBadRows.
	bad []*damage.CorruptRowError
	// at is nil unless m contains only some of the metric's series. In this case at holds the approximate position of
	// each series among all series, in ascending order, and all is the approximate number of all series.
	at  []uint32
	all int
	// located holds the positions of the series in pages, by place. It is set if at isn't nil.
	located map[format.ClassShard]*paged.Located
}

const (
	// maxBadRows is the maximum number of corrupt rows per metric that a query reports as warnings.
	maxBadRows = 10
	// seriesBytes is the size of a series in memory without its labels.
	seriesBytes = 64
)

func (m *metricSeries) Bytes() int64 {
	n := m.set.Bytes() + int64(len(m.ids)*16+len(m.places)*2+len(m.at)*4+len(m.bad)*200)
	for _, l := range m.located {
		n += l.Bytes()
	}
	return n
}

// position returns the approximate position of a series among all series of the metric in the window.
func (m *metricSeries) position(i uint32) uint32 {
	if m.at != nil {
		return m.at[i]
	}
	return i
}

// size returns the approximate number of series of the metric in the window.
func (m *metricSeries) size() int { return max(m.all, len(m.ids)) }

// Len, Less and Swap implement sort.Interface. Series are sorted by id if they come from multiple shards.
func (m *metricSeries) Len() int           { return len(m.ids) }
func (m *metricSeries) Less(i, j int) bool { return bytes.Compare(m.ids[i][:], m.ids[j][:]) < 0 }
func (m *metricSeries) Swap(i, j int) {
	m.ids[i], m.ids[j] = m.ids[j], m.ids[i]
	m.labels[i], m.labels[j] = m.labels[j], m.labels[i]
	m.places[i], m.places[j] = m.places[j], m.places[i]
}

// series returns the series of a metric in a window. shards is 0 if the number of shards is unknown, because the
// catalog wasn't read.
func (r *rowReader) series(ctx context.Context, w *sealedWindow, metric string, shards int64) (*metricSeries, error) {
	loaded := false
	key := cache.EntryKey{Kind: cache.KindSeries, Window: w.window, Tenant: r.tenant, Text: metric}
	v, err := r.env.Cache.Get(ctx, key, w.version, func(ctx context.Context) (cache.EntryValue, error) {
		loaded = true
		return r.loadSeries(ctx, w.window, metric, shards)
	})
	if err != nil {
		return nil, err
	}
	m := v.(*metricSeries)
	r.reportCorruptRows(m, loaded)
	return m, nil
}

// reportCorruptRows reports warnings for corrupt rows. It also counts the rows if they were just loaded.
func (r *rowReader) reportCorruptRows(m *metricSeries, loaded bool) {
	for _, bad := range m.bad {
		if loaded {
			r.env.Damage.RecordCorruptRow(bad.Table, bad)
		}
		r.reportWarning(bad)
	}
}

func (r *rowReader) loadSeries(ctx context.Context, window int64, metric string, shards int64) (*metricSeries, error) {
	l, err := r.newSeriesLoad(ctx, window, metric, shards)
	if err != nil {
		return nil, err
	}
	for at := range format.ClassShards(l.classes, l.shards) {
		if err := r.Scan(ctx, l.rows(at), l.add); err != nil {
			return nil, err
		}
		l.setPlaces(at)
	}
	l.finish()
	return &l.m, nil
}

// indexSerial is the serial of the newest index.
var indexSerial atomic.Uint64

// seriesLoad reads labels rows and builds a metricSeries.
type seriesLoad struct {
	r       *rowReader
	window  int64
	metric  string
	shards  int64
	classes int64 // number of classes that may have rows
	m       metricSeries
	budget  *meter.ReadBudget
	builder labels.ScratchBuilder
	memory  format.LabelMemory
	text    []byte
}

// newSeriesLoad returns a load of the series of a metric. shards is 0 if the number of shards is unknown.
func (r *rowReader) newSeriesLoad(ctx context.Context, window int64, metric string, shards int64) (*seriesLoad, error) {
	if shards == 0 {
		value, err := r.env.Shards(ctx, window, r.tenant, metric, r.env.Damage.Record)
		if err != nil {
			return nil, err
		}
		if shards = 1; value != nil {
			shards = r.shards(window, metric, value)
		}
	}
	return &seriesLoad{
		r: r, window: window, metric: metric, shards: shards, classes: r.env.Retention.Classes(),
		budget: r.newBudget(ctx), builder: labels.NewScratchBuilder(16),
	}, nil
}

// rows returns the range of the labels rows of a place.
func (l *seriesLoad) rows(at format.ClassShard) engine.Range {
	return engine.Range{
		Table:     format.TableOf(format.ResolutionOf(l.window)),
		Partition: format.SeriesPartition(l.window, l.r.tenant, l.metric, at),
		From:      engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)},
	}
}

// setPlaces sets the place of all series that were added since the last call.
func (l *seriesLoad) setPlaces(at format.ClassShard) {
	for (l.shards > 1 || l.classes > 1) && len(l.m.places) < len(l.m.ids) {
		l.m.places = append(l.m.places, at)
	}
}

// finish sorts the added series and builds the index.
func (l *seriesLoad) finish() {
	if slices.ContainsFunc(l.m.places, func(at format.ClassShard) bool { return at != 0 }) {
		sort.Stable(&l.m)
	} else {
		l.m.places = nil
	}
	l.m.set, l.m.serial = index.New(l.m.labels), indexSerial.Add(1)
}

var errOtherSeries = errors.New("storage: the labels belong to another series")

func (l *seriesLoad) add(row engine.Row) error {
	return l.addLabels(row.Clustering[format.SeriesField(format.ResolutionOf(l.window))].Text, row.Value)
}

// addLabels adds a series by its id and the value of its labels row.
func (l *seriesLoad) addLabels(series string, value []byte) error {
	var id format.SeriesID
	copy(id[:], series)
	ls, err := l.memory.Parse(value, l.metric, &l.builder)
	if err == nil {
		l.text = format.AppendSeriesSet(l.text[:0], ls)
		if format.SeriesIDOfSet(l.text) != id {
			err = errOtherSeries
		}
	}
	if err != nil {
		bad := &damage.CorruptRowError{
			Table: format.TableOf(format.ResolutionOf(l.window)), Window: l.window, Tenant: l.r.tenant,
			Metric: l.metric, Series: id.String(), Err: err,
		}
		if len(l.m.bad) < maxBadRows {
			l.m.bad = append(l.m.bad, bad)
		}
		return nil
	}
	l.m.ids = append(l.m.ids, id)
	l.m.labels = append(l.m.labels, ls)
	return l.budget.Charge(int(ls.ByteSize()) + seriesBytes)
}
