package exporter

import (
	"context"
	"encoding/json"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
)

// jsonLines writes the format of VictoriaMetrics' /api/v1/export, with one line per series and day, or more if there
// are more than lineSamples samples:
//
//	{"metric":{"__name__":"up","job":"a"},"values":[1,null,"Infinity"],"timestamps":[1798761600125,…],"nan_bits":{"1":"7ff0000000000002"}}
//
// nan_bits is Cassia's extension, which other readers ignore. It maps the index of each NaN to the NaN's bits. The bits
// of a stale marker are 7ff0000000000002.
type jsonLines struct {
	*run
	buf []byte
}

func (*jsonLines) begin(*lines) {}
func (*jsonLines) end(*lines)   {}

func (*jsonLines) metric(context.Context, *lines, string) error { return nil }

// lineSamples bounds the samples per line.
const lineSamples = 10_000

func (j *jsonLines) series(w *lines, ls labels.Labels, s *chunk.Samples) int {
	for from := 0; from < len(s.T); from += lineSamples {
		to := min(len(s.T), from+lineSamples)
		j.line(w, ls, s.T[from:to], s.V[from:to])
	}
	return len(s.T)
}

func (j *jsonLines) line(w *lines, ls labels.Labels, ts []int64, vs []float64) {
	b := append(j.buf[:0], `{"metric":`...)
	b = append(appendLabels(b, ls), `,"values":[`...)
	nans := 0
	for i, v := range vs {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(v) {
			nans++
		}
		b = appendJSONFloat(b, v)
	}
	b = append(b, `],"timestamps":[`...)
	for i, t := range ts {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, t, 10)
	}
	b = append(b, ']')
	if nans > 0 {
		b = append(b, `,"nan_bits":{`...)
		for i, v := range vs {
			if !math.IsNaN(v) {
				continue
			}
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(strconv.AppendInt(append(b, '"'), int64(i), 10), `":"`...)
			b = append(strconv.AppendUint(b, math.Float64bits(v), 16), '"')
		}
		b = append(b, '}')
	}
	b = append(b, '}', '\n')
	w.write(b)
	j.buf = b
}

// appendLabels appends labels as a JSON object, sorted by name.
func appendLabels(b []byte, ls labels.Labels) []byte {
	b = append(b, '{')
	first := true
	ls.Range(func(l labels.Label) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendJSONText(b, l.Name), ':')
		b = appendJSONText(b, l.Value)
	})
	return append(b, '}')
}

// appendJSONText appends a string as JSON.
func appendJSONText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			text, err := json.Marshal(s)
			if err != nil { // A string always has a JSON text.
				panic(err)
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendJSONFloat appends a number as VictoriaMetrics writes it: infinities are strings, and NaN is null.
func appendJSONFloat(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "null"...)
	case math.IsInf(v, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(b, `"-Infinity"`...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
