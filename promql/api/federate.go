package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/meter"
)

// FederatePath is the path from which a Prometheus server scrapes the newest samples of another server.
const FederatePath = "/federate"

// NewFederationHandler returns the handler of FederatePath. It returns the newest sample of every matching series,
// unless this sample is older than lookback, in the formats of Prometheus' own handler: text or protobuf. Only protobuf
// supports native histograms. It adds no external labels. Of the options it uses Queryable, Enter, Parser, Ready,
// MaxFederated, Now and Logger.
func NewFederationHandler(o Options, lookback time.Duration) http.Handler {
	f := &federation{Options: o, parser: promql.NewParser(o.Parser), lookback: lookback}
	router := route.New()
	router.Get(FederatePath, withCompression(f.serve))
	return router
}

type federation struct {
	Options
	parser   parser.Parser
	lookback time.Duration
}

// newestSample is the newest sample of a series: a histogram if h isn't nil, otherwise a float.
type newestSample struct {
	name   string
	labels labels.Labels
	t      int64
	f      float64
	h      *histogram.FloatHistogram
}

func (f *federation) serve(w http.ResponseWriter, r *http.Request) {
	w = retryWriter{w}
	if err := r.ParseForm(); err != nil {
		http.Error(w, fmt.Sprintf("error parsing form values: %v", err), http.StatusBadRequest)
		return
	}
	selectors, err := f.parser.ParseMetricSelectors(r.Form["match[]"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := f.Ready(); err != nil {
		http.Error(w, storage.PlainText(err.Error()), http.StatusServiceUnavailable)
		return
	}
	ctx, leave, err := f.Enter(r.Context())
	if err != nil {
		http.Error(w, storage.PlainText(err.Error()), refusedStatus(w, err))
		return
	}
	defer leave()
	samples, bytes, err := f.newestSamples(ctx, selectors)
	if err != nil {
		err = promql.ReadError(ctx, err)
		code, known := statusOf(0, err)
		if !known {
			code = http.StatusInternalServerError
		}
		http.Error(w, storage.PlainText(err.Error()), code)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.NewFormat(expfmt.TypeProtoDelim),
		expfmt.NewFormat(expfmt.TypeProtoText),
		expfmt.NewFormat(expfmt.TypeProtoCompact), expfmt.NewFormat(expfmt.TypeTextPlain))
	w.Header().Set("Content-Type", string(format))
	list := metricFamilies(samples, format.FormatType() != expfmt.TypeTextPlain)
	promql.HoldAnswer(ctx, bytes) // The read takes no further memory, so its place is given to another.
	encoder := expfmt.NewEncoder(w, format)
	for _, family := range list {
		if err := encoder.Encode(family); err != nil {
			f.Logger.Debug("can't write a federation response", "err", err)
			return
		}
	}
}

// newestSamples finds the newest sample of each series, sorted by metric name. bytes is the approximate memory of the
// samples and of the metric families made from them.
func (f *federation) newestSamples(ctx context.Context,
	selectors [][]*labels.Matcher) (out []newestSample, bytes int64, err error) {
	now := f.Now()
	hints := &promstorage.SelectHints{Start: now.Add(-f.lookback).UnixMilli(), End: now.UnixMilli()}
	q, err := f.Queryable.Querier(hints.Start, hints.End)
	if err != nil {
		return nil, 0, err
	}
	defer q.Close()
	var sets []promstorage.SeriesSet
	for _, matchers := range selectors {
		if len(matchers) == 0 { // As in Prometheus, {} selects no series.
			continue
		}
		sets = append(sets, q.Select(ctx, true, hints, matchers...))
	}
	set := promstorage.NewMergeSeriesSet(sets, 0, promstorage.ChainedSeriesMerge)
	var it chunkenc.Iterator
	for set.Next() {
		series := set.At()
		it = series.Iterator(it)
		n := newestSample{labels: series.Labels(), name: series.Labels().Get(model.MetricNameLabel)}
		if n.name != "" && n.readLast(it) {
			out = append(out, n)
			size := n.bytes()
			if bytes += size; f.MaxFederated > 0 && bytes > f.MaxFederated {
				return nil, 0, fmt.Errorf(
					"%w: the federated samples need more than %d bytes, a quarter of the memory; select fewer series",
					meter.ErrQueryTooLarge, f.MaxFederated,
				)
			}
			if err := meter.Grow(ctx, size); err != nil {
				return nil, 0, err
			}
		}
		if it.Err() != nil {
			return nil, 0, it.Err()
		}
	}
	if set.Err() != nil {
		return nil, 0, set.Err()
	}
	slices.SortStableFunc(out, func(a, b newestSample) int { return cmp.Compare(a.name, b.name) })
	return out, bytes, nil
}

func (n *newestSample) bytes() int64 {
	bytes := int64(512) // including the family's structs
	n.labels.Range(func(l labels.Label) { bytes += 128 + int64(len(l.Name)+len(l.Value)) })
	if h := n.h; h != nil {
		bytes += 64 * int64(len(h.PositiveSpans)+len(h.NegativeSpans)+len(h.PositiveBuckets)+len(h.NegativeBuckets)+
			len(h.CustomValues))
	}
	return bytes
}

// readLast sets n to the last sample of the iterator it. It returns false if there is no sample, or if the last sample
// is a stale marker, which the formats don't support.
func (n *newestSample) readLast(it chunkenc.Iterator) bool {
	typ := chunkenc.ValNone
	for next := it.Next(); next != chunkenc.ValNone; next = it.Next() {
		typ = next
		if typ == chunkenc.ValFloat {
			n.t, n.f = it.At()
			n.h = nil
		} else {
			n.t, n.h = it.AtFloatHistogram(n.h)
		}
	}
	switch {
	case typ == chunkenc.ValNone:
		return false
	case n.h != nil:
		return !value.IsStaleNaN(n.h.Sum)
	}
	return !value.IsStaleNaN(n.f)
}

// familyType returns the type of the metric family to which the sample belongs.
func (n *newestSample) familyType() dto.MetricType {
	switch {
	case n.h == nil:
		return dto.MetricType_UNTYPED
	case n.h.CounterResetHint == histogram.GaugeType:
		return dto.MetricType_GAUGE_HISTOGRAM
	}
	return dto.MetricType_HISTOGRAM
}

// metricFamilies returns one metric family for each run of consecutive samples with the same name and type. Native
// histograms with a schema are left out if native is false.
func metricFamilies(samples []newestSample, native bool) (out []*dto.MetricFamily) {
	for i := range samples {
		n := &samples[i]
		if n.h != nil && !n.h.UsesCustomBuckets() && !native {
			continue
		}
		metric := &dto.Metric{TimestampMs: &n.t, Label: labelPairs(n.labels)}
		switch {
		case n.h == nil:
			metric.Untyped = &dto.Untyped{Value: &n.f}
		case n.h.UsesCustomBuckets():
			metric.Histogram = classicHistogram(n.h)
		default:
			metric.Histogram = nativeHistogram(n.h)
		}
		typ := n.familyType()
		if len(out) == 0 || out[len(out)-1].GetName() != n.name || out[len(out)-1].GetType() != typ {
			out = append(out, &dto.MetricFamily{Name: &n.name, Type: &typ})
		}
		family := out[len(out)-1]
		family.Metric = append(family.Metric, metric)
	}
	return out
}

// labelPairs returns the labels except the name. If there is no instance label, it adds an empty one, so that the
// scraping Prometheus doesn't add its own.
func labelPairs(ls labels.Labels) (out []*dto.LabelPair) {
	ls.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel && l.Value != "" {
			out = append(out, &dto.LabelPair{Name: new(l.Name), Value: new(l.Value)})
		}
	})
	if ls.Get(model.InstanceLabel) == "" {
		out = append(out, &dto.LabelPair{Name: new(string(model.InstanceLabel)), Value: new("")})
	}
	return out
}

func nativeHistogram(h *histogram.FloatHistogram) *dto.Histogram {
	return &dto.Histogram{
		SampleCountFloat: &h.Count, SampleSum: &h.Sum, Schema: &h.Schema, ZeroThreshold: &h.ZeroThreshold,
		ZeroCountFloat: &h.ZeroCount,
		PositiveSpan:   bucketSpans(h.PositiveSpans), PositiveCount: h.PositiveBuckets,
		NegativeSpan: bucketSpans(h.NegativeSpans), NegativeCount: h.NegativeBuckets,
	}
}

func bucketSpans(in []histogram.Span) (out []*dto.BucketSpan) {
	for _, s := range in {
		out = append(out, &dto.BucketSpan{Offset: new(s.Offset), Length: new(s.Length)})
	}
	return out
}

// classicHistogram returns a histogram with a cumulative bucket for each custom bound. The bucket for +Inf is left out,
// because its count is the count of the histogram.
func classicHistogram(h *histogram.FloatHistogram) *dto.Histogram {
	out := &dto.Histogram{SampleCountFloat: &h.Count, SampleSum: &h.Sum}
	within := make([]float64, len(h.CustomValues))
	for it := h.PositiveBucketIterator(); it.Next(); {
		if b := it.At(); int(b.Index) < len(within) {
			within[b.Index] = b.Count
		}
	}
	sum := 0.0
	for i, n := range within {
		sum += n
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: new(h.CustomValues[i]), CumulativeCountFloat: new(sum)})
	}
	return out
}
