package promql

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Where raw samples are gone, what asks for samples gets those that buckets keep, the first and the last of each:
//
//	time     |........... 1h ...........|....... 5m .......|...... raw ......|
//	samples  first, last of each hour     of each 5 minutes   all
//
// The planner answers better. This is for what it leaves to the evaluator, and for remote read.

// sourceSeries is a series of a SeriesSet: its samples, and where raw is gone, its buckets.
type sourceSeries struct {
	labels labels.Labels
	raw    *storage.SelectedSeries // nil: it has none
	older  []*storage.SelectedSeries

	// named is what the series is a rollup of, aggregate which one, until when; nil: it is none.
	named     *storage.SelectedSeries
	aggregate *aggregate
	until     int64
}

// samples appends all samples of the series.
func (s *sourceSeries) samples(into *chunk.Samples) error {
	if s.named != nil {
		return s.aggregate.appendNamed(into, s.named, s.until)
	}
	if len(s.older) == 0 {
		return s.raw.Samples(into)
	}
	var buckets rollup.Buckets
	var buffers storage.BucketBuffers
	for _, o := range s.older {
		if err := o.Buckets(&buckets, &buffers); err != nil {
			return err
		}
		appendEnds(into, &buckets)
	}
	if s.raw != nil {
		var own chunk.Samples
		if err := s.raw.Samples(&own); err != nil {
			return err
		}
		into.AppendAll(&own)
	}
	into.Normalize()
	return nil
}

// misledByEnds are functions that samples left out would mislead, though buckets could answer them.
var misledByEnds = map[string]bool{"count_over_time": true, "sum_over_time": true}

// selectAll finds the series of a query, with those of times whose raw samples are gone.
func (r *reader) selectAll(ctx context.Context, q storage.Query, function string) ([]sourceSeries, error) {
	raw, err := r.store.Select(ctx, q)
	if err != nil {
		return nil, err
	}
	series := make([]sourceSeries, len(raw))
	for i, s := range raw {
		series[i] = sourceSeries{labels: s.Labels, raw: s}
	}
	horizons, err := r.store.HorizonsOf(ctx, q)
	if err != nil {
		return nil, err
	}
	horizon := latest(horizons, rollup.Raw)
	if q.MinT > horizon || q.LabelsOnly || resolvingOf(ctx).mode == modeRaw {
		return series, nil
	}
	at := map[string]int{}
	var key []byte
	for i := range series {
		key = series[i].labels.Bytes(key)
		at[string(key)] = i
	}
	found := false
	for _, older := range olderQueries(q, horizons) {
		list, err := r.store.Select(ctx, older)
		if err != nil {
			return nil, err
		}
		found = found || len(list) > 0
		for _, s := range list {
			key = s.Labels.Bytes(key)
			i, ok := at[string(key)]
			if !ok {
				i = len(series)
				at[string(key)] = i
				series = append(series, sourceSeries{labels: s.Labels})
			}
			series[i].older = append(series[i].older, s)
		}
	}
	if !found {
		return series, nil
	}
	if fn := functionOf(function); misledByEnds[function] || fn != nil && fn.withoutRaw == refused {
		return nil, fmt.Errorf("%w before %s, and this use of %s can't be answered from rollups: ask for a later time, or for the function by itself",
			errRawGone, formatTime(horizon), function)
	}
	q.Warn(&missingError{shortfall{
		From: max(q.MinT, 0), To: min(q.MaxT, horizon), Raw: horizon, Widest: rollup.OneHour, Approximated: true,
	}})
	if q.Sorted {
		slices.SortFunc(series, func(a, b sourceSeries) int { return labels.Compare(a.labels, b.labels) })
	}
	if q.Limit > 0 && len(series) > q.Limit {
		series = series[:q.Limit]
	}
	return series, nil
}

// olderQueries ask for the buckets of the times whose samples are gone, class by class.
func olderQueries(q storage.Query, horizons []storage.Horizons) (list []storage.Query) {
	for _, h := range horizons {
		for _, res := range []rollup.Resolution{rollup.OneHour, rollup.FiveMinutes} {
			older := q
			older.MinT, older.MaxT = max(q.MinT, h.At[res]+1), min(q.MaxT, h.At[res-1])
			older.Classes, older.Resolution = h.Class, res
			older.Columns = rollup.ColumnCount | rollup.ColumnFirst | rollup.ColumnLast
			if older.MinT <= older.MaxT {
				list = append(list, older)
			}
		}
	}
	return list
}

// stepIn returns the distance of the query's steps, milliseconds.
func stepIn(hints *promstorage.SelectHints) int64 {
	if hints == nil {
		return 0
	}
	return hints.Step
}

// functionIn returns the name of the function that the hints tell.
func functionIn(hints *promstorage.SelectHints) string {
	if hints == nil {
		return ""
	}
	return hints.Func
}
