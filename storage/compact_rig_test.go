package storage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

func takesClear(e engine.Engine) bool {
	c, ok := engine.As[engine.Clearing](e)
	return ok && c.TakesClear()
}

// TakesClear implements engine.Clearing, where the engine does.
func (e unclosed) TakesClear() bool { return takesClear(e.Engine) }

// TakesClear implements engine.Clearing, where the engine does.
func (e *cuttingEngine) TakesClear() bool { return takesClear(e.Engine) }

// TakesClear implements engine.Clearing, where the engine does and a process has it for itself.
func (e *stepEngine) TakesClear() bool { return !e.shared && e.inner.TakesClear() }

// compactAll compacts all windows that are over, and calls between between pieces of the work.
func (s *Store) compactAll(ctx context.Context, between func()) (all paged.Compacted, err error) {
	list, err := oldestFirst(s.Compactable(ctx, func() {}))
	for i := 0; i < len(list) && err == nil; i++ {
		var done paged.Compacted
		done, err = s.Compact(ctx, list[i], between)
		all.Series, all.Chunks, all.Left = all.Series+done.Series, all.Chunks+done.Chunks, all.Left+done.Left
	}
	return all, err
}

// wholeQuery asks a tenant for all that it has at a resolution.
func wholeQuery(tenant string, res rollup.Resolution) query.Query {
	return query.Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns, Sorted: true,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
	}
}

// partQuery asks for a part of what wholeQuery does: some time between two times with some columns.
func partQuery(rng *rand.Rand, tenant string, res rollup.Resolution, from, to int64) query.Query {
	q := wholeQuery(tenant, res)
	q.MinT = from + rng.Int64N(to-from)
	q.MaxT = q.MinT + rng.Int64N([]int64{format.HourMS, format.DayMS, 10 * format.DayMS, 60 * format.DayMS}[rng.IntN(4)])
	if rng.IntN(2) == 0 {
		width := max(res.Width(), 1)
		q.MinT, q.MaxT = format.FloorDiv(q.MinT, width)*width+1, format.FloorDiv(q.MaxT, width)*width
	}
	if rng.IntN(2) == 0 {
		q.Columns = rollup.Columns(1 + rng.IntN(int(rollup.AllColumns)))
	}
	for range rng.IntN(3) {
		at := q.MinT
		if n := len(q.Edges); n > 0 {
			at = q.Edges[n-1]
		}
		if at < q.MaxT {
			q.Edges = append(q.Edges, at+rng.Int64N(q.MaxT-at))
		}
	}
	return q
}

// answerTo returns what a query gives as text, series by series, each float bit for bit.
func answerTo(ctx context.Context, s *Store, q query.Query) (map[string]string, error) {
	found, err := s.Select(ctx, q)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	var samples chunk.Samples
	var b rollup.Buckets
	var buf query.BucketBuffers
	for _, x := range found {
		if q.Resolution == rollup.Raw {
			if err := x.Samples(&samples); err != nil {
				return nil, err
			}
			if samples.Len() > 0 {
				all[x.Labels.String()] = showColumns(&samples)
			}
			continue
		}
		if err := x.Buckets(&b, &buf); err != nil {
			return nil, err
		}
		b.Delete(0, func(end int64) bool { return end < q.MinT || end-q.Resolution.Width() >= q.MaxT })
		if b.Len() > 0 {
			all[x.Labels.String()] = showColumns(&b)
		}
	}
	return all, nil
}

// showColumns shows the columns of a struct of slices, each float as its bits.
func showColumns(columns any) string {
	var out strings.Builder
	of := reflect.ValueOf(columns).Elem()
	for i := range of.NumField() {
		if !of.Type().Field(i).IsExported() {
			continue
		}
		switch x := of.Field(i).Interface().(type) {
		case []float64:
			fmt.Fprintf(&out, "%s:", of.Type().Field(i).Name)
			for _, v := range x {
				fmt.Fprintf(&out, " %x", math.Float64bits(v))
			}
		case []chunk.Histogram:
			for _, h := range x {
				fmt.Fprintf(&out, " [%d %d %v %v]", h.T, h.ST, h.Int, h.Float)
			}
		case []*rollup.Sketch:
			for i, s := range x {
				if s != nil {
					fmt.Fprintf(&out, " sketch %d %v", i, s.Bins)
				}
			}
		case []*rollup.Histograms:
			for _, h := range x {
				if h != nil {
					fmt.Fprintf(&out, " [%s | %s | %s]", showHistogram(h.First), showHistogram(h.Last), showHistogram(h.Correction))
				}
			}
		default:
			fmt.Fprintf(&out, "%s: %v", of.Type().Field(i).Name, x)
		}
		out.WriteString("; ")
	}
	return out.String()
}

func showHistogram(h *histogram.FloatHistogram) string {
	if h == nil {
		return "none"
	}
	return fmt.Sprintf("%v %+v", h, *h)
}

// changed names a series whose answer differs; "": there is none.
func changed(before, after map[string]string) string {
	for name, want := range before {
		if got := after[name]; got != want {
			return fmt.Sprintf("%s\nwas %s\nis  %s", name, want, got)
		}
	}
	for name, got := range after {
		if before[name] == "" {
			return fmt.Sprintf("%s\nwasn't there\nis %s", name, got)
		}
	}
	return ""
}
