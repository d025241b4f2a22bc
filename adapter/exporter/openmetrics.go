package exporter

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

// openMetrics writes OpenMetrics text, version 1.0: https://prometheus.io/docs/specs/om/open_metrics_spec/
//
//	# TYPE http_requests counter
//	# HELP http_requests How many there were.
//	http_requests_total{code="200",instance="a:1"} 17 1798761600.125
//	# EOF
//
// Histograms and summaries get no TYPE, because Prometheus' parser rewrites the values of the labels le and quantile of
// metrics with these types.
type openMetrics struct {
	*run
	buf []byte
}

func (*openMetrics) begin(*lines) {}

func (*openMetrics) end(w *lines) { w.writeString("# EOF\n") }

// metric writes the metadata of a metric.
func (o *openMetrics) metric(ctx context.Context, w *lines, name string) error {
	family, m, err := o.metadata(ctx, name)
	if err != nil || m == nil {
		return err
	}
	family = quotedName(family)
	switch m.Type {
	case "counter":
		if strings.HasSuffix(name, "_total") {
			w.writeString("# TYPE ", family, " counter\n")
		}
	case "gauge", "info", "stateset":
		w.writeString("# TYPE ", family, " ", m.Type, "\n")
	}
	if m.Help != "" {
		w.writeString("# HELP ", family, " ", helpEscapes.Replace(m.Help), "\n")
	}
	return nil
}

// metadata returns the metadata of a metric. It is stored under the metric's name or, for a counter, under the name
// without _total, which OpenMetrics removes from family names.
func (o *openMetrics) metadata(ctx context.Context, name string) (family string, m *format.Metadata, err error) {
	trimmed, counter := strings.CutSuffix(name, "_total")
	names := []string{name}
	if counter && trimmed != "" {
		names = append(names, trimmed)
	}
	for _, n := range names {
		found, err := o.store.Metadata(ctx, o.Tenant, n, 0)
		if err != nil {
			return "", nil, err
		}
		if list := found[n]; len(list) > 0 {
			if counter && list[0].Type == "counter" {
				return trimmed, &list[0], nil
			}
			if n == name {
				return name, &list[0], nil
			}
		}
	}
	return "", nil, nil
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// quotedName returns a name, quoted if it isn't a legacy name.
func quotedName(name string) string {
	if model.LegacyValidation.IsValidMetricName(name) {
		return name
	}
	return `"` + labelEscapes.Replace(name) + `"`
}

// series writes one line per sample.
func (o *openMetrics) series(w *lines, ls labels.Labels, s *chunk.Samples) (n int) {
	prefix := seriesText(ls)
	for i, v := range s.V {
		switch {
		case value.IsStaleNaN(v):
			o.stats.LeftOut.Stale++
			continue
		case math.IsNaN(v) && math.Float64bits(v) != value.NormalNaN:
			o.stats.LeftOut.NaNs++
		}
		b := append(o.buf[:0], prefix...)
		b = append(appendFloat(append(b, ' '), v), ' ')
		b = append(appendSeconds(b, s.T[i]), '\n')
		w.write(b)
		o.buf = b
		n++
	}
	return n
}

// seriesText returns a series in the syntax of OpenMetrics.
func seriesText(ls labels.Labels) string {
	var b strings.Builder
	name := ls.Get(labels.MetricName)
	plain := model.LegacyValidation.IsValidMetricName(name)
	if plain {
		b.WriteString(name)
	}
	between := "{"
	if !plain {
		b.WriteString("{" + quotedName(name))
		between = ","
	}
	ls.Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			return
		}
		b.WriteString(between)
		between = ","
		if model.LegacyValidation.IsValidLabelName(l.Name) {
			b.WriteString(l.Name)
		} else {
			b.WriteString(`"` + labelEscapes.Replace(l.Name) + `"`)
		}
		b.WriteString(`="` + labelEscapes.Replace(l.Value) + `"`)
	})
	if between == "," {
		b.WriteByte('}')
	}
	return b.String()
}

// appendFloat appends the shortest number that parses to the same bits.
func appendFloat(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsNaN(v):
		return append(b, "NaN"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// appendSeconds appends milliseconds as seconds. Prometheus' and other parsers multiply the number by 1000 as a float
// and truncate the product. Where this would lose a millisecond, appendSeconds adds 0.1 ms.
func appendSeconds(b []byte, ms int64) []byte {
	from := len(b)
	if ms < 0 {
		b = append(b, '-')
		ms = -ms
	}
	b = strconv.AppendInt(b, ms/1000, 10)
	if rest := ms % 1000; rest != 0 {
		b = append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	}
	digits := b[from:]
	if digits[0] == '-' {
		digits = digits[1:]
	}
	if seconds, err := strconv.ParseFloat(string(digits), 64); err == nil && int64(seconds*1000) != ms {
		b = append(b, '1')
	}
	return b
}
