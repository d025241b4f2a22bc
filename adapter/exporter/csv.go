package exporter

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

// csv writes one line per sample as defined in RFC 4180, with \n as line end:
//
//	metric,labels,timestamp_ms,value
//	up,"{""job"":""a""}",1798761600125,1
//
// labels is a JSON object of all labels except the metric name. value is the shortest number that parses to the same
// bits, or +Inf, -Inf, NaN, or stale for a stale marker.
type csv struct {
	*run
	buf []byte
}

func (*csv) begin(w *lines) { w.writeString("metric,labels,timestamp_ms,value\n") }
func (*csv) end(*lines)     {}

func (*csv) metric(context.Context, *lines, string) error { return nil }

func (c *csv) series(w *lines, ls labels.Labels, s *chunk.Samples) int {
	others := labels.NewBuilder(ls).Del(labels.MetricName).Labels()
	prefix := csvField(ls.Get(labels.MetricName)) + "," + csvField(string(appendLabels(nil, others))) + ","
	for i, v := range s.V {
		b := append(c.buf[:0], prefix...)
		b = append(strconv.AppendInt(b, s.T[i], 10), ',')
		switch {
		case value.IsStaleNaN(v):
			b = append(b, "stale"...)
		default:
			if math.IsNaN(v) && math.Float64bits(v) != value.NormalNaN {
				c.stats.LeftOut.NaNs++
			}
			b = appendFloat(b, v)
		}
		b = append(b, '\n')
		w.write(b)
		c.buf = b
	}
	return len(s.V)
}

// csvField quotes a field if necessary.
func csvField(s string) string {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
