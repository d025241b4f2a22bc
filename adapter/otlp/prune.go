package otlp

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Bounds of the translation. For each label that it adds, the translation searches all labels, and for each bucket it
// copies all labels.
const (
	// maxAttributes bounds the attributes of a data point. The store accepts 64 labels; attributes whose translated
	// names are equal become one label.
	maxAttributes = 128
	// maxResourceAttributes bounds the attributes of a resource, and of a scope.
	maxResourceAttributes = 256
	// maxSeriesText bounds the text of one series' labels in bytes. The store's limit is lower, and Prometheus' labels
	// package panics above 16 MiB.
	maxSeriesText = 2 << 20
	// maxWork bounds the text of all labels that a request is translated to, in bytes.
	maxWork = 2 << 30
	// seriesWork counts against maxWork per series, and attributeWork per attribute, in addition to their text.
	seriesWork    = 64
	attributeWork = 32
)

// pruner removes and counts the parts of a request that can't be translated or whose translation costs too much.
type pruner struct {
	translation *Translation
	rejections  *rejections
	// left counts the points that were kept. work is the unused part of maxWork.
	left int
	work int64
	// outer is the size of the text that resource and scope add to each series. hasTooManyAttributes is set if the
	// resource or the scope has too many attributes.
	outer                int64
	hasTooManyAttributes bool
	metric               string
	// isDelta is set if the current points are deltas. oldestDelta is the earliest end of the request's deltas in
	// milliseconds; noDelta if it has none.
	isDelta     bool
	oldestDelta int64
	// unit is the length of the metric's unit, which may become part of the metric's name.
	unit int
}

// pruneMetrics processes a whole request. It returns the number of data points before and after, and the earliest end
// of its deltas in milliseconds.
func pruneMetrics(md pmetric.Metrics, t *Translation, r *rejections) (points, left int, oldestDelta int64) {
	p := pruner{translation: t, rejections: r, work: maxWork, oldestDelta: noDelta}
	before := r.points()
	for i := range md.ResourceMetrics().Len() {
		of := md.ResourceMetrics().At(i)
		for j := range of.ScopeMetrics().Len() {
			scope := of.ScopeMetrics().At(j)
			p.enterScope(of.Resource().Attributes(), scope)
			scope.Metrics().RemoveIf(p.rejectsMetric)
		}
		if exceedsMaxAttributes(of.Resource().Attributes()) {
			// The resource has no points left. Its attributes are removed, because the translation would create
			// target_info from them.
			pcommon.NewMap().CopyTo(of.Resource().Attributes())
		}
	}
	return p.left + r.points() - before, p.left, p.oldestDelta
}

func (p *pruner) enterScope(resource pcommon.Map, scope pmetric.ScopeMetrics) {
	p.outer = 0
	p.hasTooManyAttributes = exceedsMaxAttributes(resource) || exceedsMaxAttributes(scope.Scope().Attributes())
	if p.hasTooManyAttributes {
		return
	}
	if p.translation.PromoteAllResourceAttributes || len(p.translation.PromoteResourceAttributes) > 0 {
		p.outer += attributesText(resource)
	} else {
		for _, name := range []string{"service.name", "service.namespace", "service.instance.id"} {
			if v, ok := resource.Get(name); ok {
				p.outer += attributeText(name, v)
			}
		}
	}
	if p.translation.PromoteScopeMetadata {
		s := scope.Scope()
		p.outer += attributesText(s.Attributes()) + int64(len(s.Name())+len(s.Version())+len(scope.SchemaUrl()))
	}
}

// exceedsMaxAttributes reports whether the attributes of a resource or a scope exceed maxResourceAttributes or
// maxSeriesText.
func exceedsMaxAttributes(attributes pcommon.Map) bool {
	return attributes.Len() > maxResourceAttributes || attributesText(attributes) > maxSeriesText
}

// attributesText returns the size in bytes of the labels made from attributes, including attributeWork per attribute.
func attributesText(attributes pcommon.Map) (total int64) {
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

// rejectsMetric removes the points of a metric that can't be translated. It reports whether the metric itself must be
// removed.
func (p *pruner) rejectsMetric(m pmetric.Metric) bool {
	p.metric, p.unit, p.isDelta = m.Name(), len(m.Unit()), false
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		p.pruneNumbers(m.Gauge().DataPoints())
	case pmetric.MetricTypeSum:
		points := m.Sum().DataPoints()
		if !p.acceptsTemporality(m.Sum(), points.Len()) {
			return true
		}
		p.pruneNumbers(points)
	case pmetric.MetricTypeHistogram:
		points := m.Histogram().DataPoints()
		if !p.acceptsTemporality(m.Histogram(), points.Len()) {
			return true
		}
		points.RemoveIf(p.rejectsHistogram)
		p.left += points.Len()
	case pmetric.MetricTypeExponentialHistogram:
		points := m.ExponentialHistogram().DataPoints()
		if !p.acceptsTemporality(m.ExponentialHistogram(), points.Len()) {
			return true
		}
		points.RemoveIf(p.rejectsExponential)
		p.left += points.Len()
	case pmetric.MetricTypeSummary:
		points := m.Summary().DataPoints()
		points.RemoveIf(func(pt pmetric.SummaryDataPoint) bool {
			return p.rejectsPoint(pt.Timestamp(), pt.Attributes(), 2+pt.QuantileValues().Len())
		})
		p.left += points.Len()
	}
	return false
}

// acceptsTemporality reports whether points of a metric's temporality are accepted, and counts them if not. It sets the
// temporality of deltas to cumulative.
func (p *pruner) acceptsTemporality(of interface {
	AggregationTemporality() pmetric.AggregationTemporality
	SetAggregationTemporality(pmetric.AggregationTemporality)
}, points int,
) bool {
	switch of.AggregationTemporality() {
	case pmetric.AggregationTemporalityCumulative:
		return true
	case pmetric.AggregationTemporalityDelta:
		p.isDelta = true
		of.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		return true
	}
	if points > 0 {
		p.rejections.add(reasonNoTemporality, points, func() string {
			return fmt.Sprintf("metric %.128q has no aggregation temporality", p.metric)
		})
	}
	return false
}

func (p *pruner) pruneNumbers(points pmetric.NumberDataPointSlice) {
	points.RemoveIf(func(pt pmetric.NumberDataPoint) bool {
		dropUnreadable(pt.Exemplars())
		return p.rejectsDelta(pt) || p.rejectsPoint(pt.Timestamp(), pt.Attributes(), 1)
	})
	p.left += points.Len()
}

func (p *pruner) rejectsHistogram(pt pmetric.HistogramDataPoint) bool {
	dropUnreadable(pt.Exemplars())
	series := 1
	if !p.translation.ConvertHistogramsToNHCB {
		series = 3 + pt.ExplicitBounds().Len()
	}
	return p.rejectsDelta(pt) || p.rejectsPoint(pt.Timestamp(), pt.Attributes(), series)
}

func (p *pruner) rejectsExponential(pt pmetric.ExponentialHistogramDataPoint) bool {
	dropUnreadable(pt.Exemplars())
	if pt.Scale() < histogram.ExponentialSchemaMin {
		p.rejections.add(reasonBadScale, 1, func() string {
			return fmt.Sprintf("metric %.128q has scale %d; the minimum is %d",
				p.metric, pt.Scale(), histogram.ExponentialSchemaMin)
		})
		return true
	}
	return p.rejectsDelta(pt) || p.rejectsPoint(pt.Timestamp(), pt.Attributes(), 1)
}

// dropUnreadable removes exemplars without a value: they would make the translation skip the whole metric.
func dropUnreadable(exemplars pmetric.ExemplarSlice) {
	exemplars.RemoveIf(func(e pmetric.Exemplar) bool { return e.ValueType() == pmetric.ExemplarValueTypeEmpty })
}

// rejectsPoint reports whether a point that is translated to the given number of series is rejected, and counts it if
// so.
func (p *pruner) rejectsPoint(at pcommon.Timestamp, attributes pcommon.Map, series int) bool {
	reason, text := "", ""
	cost := int64(0)
	switch {
	case at == 0:
		reason, text = reasonNoTimestamp, "has a data point without a timestamp"
	case at > math.MaxInt64:
		reason, text = reasonNoTimestamp, "has a data point with a timestamp after the year 2262"
	case p.hasTooManyAttributes:
		reason, text = reasonTooManyAttributes, fmt.Sprintf(
			"has a resource or a scope with more than %d attributes, or more than %d bytes of attributes",
			maxResourceAttributes, maxSeriesText,
		)
	case attributes.Len() > maxAttributes:
		reason = reasonTooManyAttributes
		text = fmt.Sprintf("has a data point with %d attributes; the maximum is %d", attributes.Len(), maxAttributes)
	case p.outer+attributesText(attributes)+int64(len(p.metric)+p.unit) > maxSeriesText:
		reason = reasonTooMuchText
		text = fmt.Sprintf("has a data point with more than %d bytes of attributes and names", maxSeriesText)
	default:
		cost = int64(series) * (seriesWork + int64(len(p.metric)) + p.outer + attributesText(attributes))
		if cost > p.work {
			reason, text = reasonTooMuchText, fmt.Sprintf(
				"would become, together with the data points before it, series with more than %d bytes of labels; "+
					"send fewer data points per request",
				int64(maxWork),
			)
		}
	}
	if reason == "" {
		p.work -= cost
		return false
	}
	p.rejections.add(reason, 1, func() string { return fmt.Sprintf("metric %.128q %s", p.metric, text) })
	return true
}

// minTruncated is the min length of a text passed to truncate. The limits allow all shorter texts.
const minTruncated = 32

// truncateAttributes shortens values of resource attributes that are too long for a label, by calling truncate. If a
// value that isn't a string is shortened, it becomes a string.
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
