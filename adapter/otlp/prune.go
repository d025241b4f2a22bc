package otlp

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Bounds of what the translation is asked to do. It looks through all labels for each that it adds, and writes all of
// them anew for each bucket.
const (
	// maxAttributes of a data point. The store takes 64 labels; attributes whose names become one are one label.
	maxAttributes = 128
	// maxResourceAttributes of a resource, and of a scope.
	maxResourceAttributes = 256
	// maxSeriesText bounds the labels' text of one series, bytes. The store takes less, and Prometheus' labels panic beyond 16 MiB.
	maxSeriesText = 2 << 20
	// maxWork bounds the labels' text that a request is translated to, bytes.
	maxWork = 2 << 30
	// seriesWork is what a series counts of it beside its text, and an attribute attributeWork.
	seriesWork    = 64
	attributeWork = 32
)

// pruner takes out of a request what can't be translated, or for a price out of proportion, and counts it.
type pruner struct {
	translation *Translation
	refusals    *refusals
	// left is how many points are left in the request, and work how much of maxWork is left.
	left int
	work int64
	// outer is the text that a point's series have from resource and scope; tooManyAttributes: one of these has too
	// many attributes.
	outer             int64
	tooManyAttributes bool
	metric            string
	// delta: the points at hand are deltas. oldestDelta is when the oldest of the request ends, milliseconds; noDelta: there is none.
	delta       bool
	oldestDelta int64
	// unit is how long the metric's unit is, which may become a part of its name.
	unit int
}

// prune works on all of a request, and returns how many data points it had, how many are left, and when the oldest delta among them ends.
func prune(md pmetric.Metrics, t *Translation, r *refusals) (points, left int, oldestDelta int64) {
	p := pruner{translation: t, refusals: r, work: maxWork, oldestDelta: noDelta}
	before := r.points()
	for i := range md.ResourceMetrics().Len() {
		of := md.ResourceMetrics().At(i)
		for j := range of.ScopeMetrics().Len() {
			scope := of.ScopeMetrics().At(j)
			p.enter(of.Resource().Attributes(), scope)
			scope.Metrics().RemoveIf(p.refusesMetric)
		}
		if tooMany(of.Resource().Attributes()) {
			// target_info would be made of them, and there are no points any more.
			pcommon.NewMap().CopyTo(of.Resource().Attributes())
		}
	}
	return p.left + r.points() - before, p.left, p.oldestDelta
}

func (p *pruner) enter(resource pcommon.Map, scope pmetric.ScopeMetrics) {
	p.outer, p.tooManyAttributes = 0, tooMany(resource) || tooMany(scope.Scope().Attributes())
	if p.tooManyAttributes {
		return
	}
	if p.translation.PromoteAllResourceAttributes || len(p.translation.PromoteResourceAttributes) > 0 {
		p.outer += textOf(resource)
	} else {
		for _, name := range []string{"service.name", "service.namespace", "service.instance.id"} {
			if v, ok := resource.Get(name); ok {
				p.outer += attributeText(name, v)
			}
		}
	}
	if p.translation.PromoteScopeMetadata {
		s := scope.Scope()
		p.outer += textOf(s.Attributes()) + int64(len(s.Name())+len(s.Version())+len(scope.SchemaUrl()))
	}
}

// tooMany reports whether a resource or a scope has more attributes, or longer ones, than labels can be made of.
func tooMany(attributes pcommon.Map) bool {
	return attributes.Len() > maxResourceAttributes || textOf(attributes) > maxSeriesText
}

// textOf is how many bytes of labels attributes become, with attributeWork for each.
func textOf(attributes pcommon.Map) (total int64) {
	for name, v := range attributes.All() {
		total += attributeText(name, v)
	}
	return total
}

func attributeText(name string, v pcommon.Value) int64 {
	size := attributeWork + int64(len(name))
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return size + int64(len(v.Str()))
	case pcommon.ValueTypeMap, pcommon.ValueTypeSlice, pcommon.ValueTypeBytes:
		return size + int64(len(v.AsString()))
	}
	return size + 16 // a number or a boolean
}

// refusesMetric reports whether nothing of a metric can be translated; else it takes out what can't.
func (p *pruner) refusesMetric(m pmetric.Metric) bool {
	p.metric, p.unit, p.delta = m.Name(), len(m.Unit()), false
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		p.numbers(m.Gauge().DataPoints())
	case pmetric.MetricTypeSum:
		points := m.Sum().DataPoints()
		if !p.temporal(m.Sum(), points.Len()) {
			return true
		}
		p.numbers(points)
	case pmetric.MetricTypeHistogram:
		points := m.Histogram().DataPoints()
		if !p.temporal(m.Histogram(), points.Len()) {
			return true
		}
		points.RemoveIf(p.histogram)
		p.left += points.Len()
	case pmetric.MetricTypeExponentialHistogram:
		points := m.ExponentialHistogram().DataPoints()
		if !p.temporal(m.ExponentialHistogram(), points.Len()) {
			return true
		}
		points.RemoveIf(p.exponential)
		p.left += points.Len()
	case pmetric.MetricTypeSummary:
		points := m.Summary().DataPoints()
		points.RemoveIf(func(pt pmetric.SummaryDataPoint) bool {
			return p.refuses(pt.Timestamp(), pt.Attributes(), 2+pt.QuantileValues().Len())
		})
		p.left += points.Len()
	}
	return false
}

// temporal reports whether points of a metric's temporality are taken, and counts them if they aren't. Deltas are translated as cumulative points.
func (p *pruner) temporal(of interface {
	AggregationTemporality() pmetric.AggregationTemporality
	SetAggregationTemporality(pmetric.AggregationTemporality)
}, points int,
) bool {
	switch of.AggregationTemporality() {
	case pmetric.AggregationTemporalityCumulative:
		return true
	case pmetric.AggregationTemporalityDelta:
		p.delta = true
		of.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		return true
	}
	if points > 0 {
		p.refusals.add(reasonNoTemporality, points, func() string {
			return fmt.Sprintf("metric %.128q has no aggregation temporality", p.metric)
		})
	}
	return false
}

func (p *pruner) numbers(points pmetric.NumberDataPointSlice) {
	points.RemoveIf(func(pt pmetric.NumberDataPoint) bool {
		dropUnreadable(pt.Exemplars())
		return p.refusesDelta(pt) || p.refuses(pt.Timestamp(), pt.Attributes(), 1)
	})
	p.left += points.Len()
}

func (p *pruner) histogram(pt pmetric.HistogramDataPoint) bool {
	dropUnreadable(pt.Exemplars())
	series := 1
	if !p.translation.ConvertHistogramsToNHCB {
		series = 3 + pt.ExplicitBounds().Len()
	}
	return p.refusesDelta(pt) || p.refuses(pt.Timestamp(), pt.Attributes(), series)
}

func (p *pruner) exponential(pt pmetric.ExponentialHistogramDataPoint) bool {
	dropUnreadable(pt.Exemplars())
	if pt.Scale() < histogram.ExponentialSchemaMin {
		p.refusals.add(reasonBadScale, 1, func() string {
			return fmt.Sprintf("metric %.128q has scale %d; the minimum is %d", p.metric, pt.Scale(), histogram.ExponentialSchemaMin)
		})
		return true
	}
	return p.refusesDelta(pt) || p.refuses(pt.Timestamp(), pt.Attributes(), 1)
}

// dropUnreadable takes out exemplars without a value, which would take their whole metric with them.
func dropUnreadable(exemplars pmetric.ExemplarSlice) {
	exemplars.RemoveIf(func(e pmetric.Exemplar) bool { return e.ValueType() == pmetric.ExemplarValueTypeEmpty })
}

// refuses reports whether a point that becomes so many series is refused, and counts it if it is.
func (p *pruner) refuses(at pcommon.Timestamp, attributes pcommon.Map, series int) bool {
	reason, text := "", ""
	cost := int64(0)
	switch {
	case at == 0:
		reason, text = reasonNoTimestamp, "has a data point without a timestamp"
	case at > math.MaxInt64:
		reason, text = reasonNoTimestamp, "has a data point with a timestamp after the year 2262"
	case p.tooManyAttributes:
		reason, text = reasonTooManyAttributes, fmt.Sprintf("has a resource or a scope with more than %d attributes, or more than %d bytes of attributes", maxResourceAttributes, maxSeriesText)
	case attributes.Len() > maxAttributes:
		reason, text = reasonTooManyAttributes, fmt.Sprintf("has a data point with %d attributes; the maximum is %d", attributes.Len(), maxAttributes)
	case p.outer+textOf(attributes)+int64(len(p.metric)+p.unit) > maxSeriesText:
		reason, text = reasonTooMuchText, fmt.Sprintf("has a data point with more than %d bytes of attributes and names", maxSeriesText)
	default:
		cost = int64(series) * (seriesWork + int64(len(p.metric)) + p.outer + textOf(attributes))
		if cost > p.work {
			reason, text = reasonTooMuchText, fmt.Sprintf("would become, together with the data points before it, series with more than %d bytes of labels; send fewer data points per request", int64(maxWork))
		}
	}
	if reason == "" {
		p.work -= cost
		return false
	}
	p.refusals.add(reason, 1, func() string { return fmt.Sprintf("metric %.128q %s", p.metric, text) })
	return true
}

// minTruncated is how long a text is at least that is given to truncate.
const minTruncated = 32

// truncateAttributes replaces the values of resources' attributes that are too long for a label, as truncate does. A value that isn't text is
// replaced by its text.
func truncateAttributes(md pmetric.Metrics, truncate func(attribute, value string) string) {
	for i := range md.ResourceMetrics().Len() {
		for name, v := range md.ResourceMetrics().At(i).Resource().Attributes().All() {
			switch v.Type() {
			case pcommon.ValueTypeStr, pcommon.ValueTypeMap, pcommon.ValueTypeSlice, pcommon.ValueTypeBytes:
			default:
				continue // A number or a boolean.
			}
			text := v.AsString()
			if len(text) < minTruncated {
				continue
			}
			if short := truncate(name, text); short != text {
				v.SetStr(short)
			}
		}
	}
}
