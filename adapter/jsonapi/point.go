package jsonapi

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/prometheus/model/labels"
)

// maxTags bounds the JSON text of a point's tags in bytes: eight times the store's limit on the labels of a series.
const maxTags = 512 << 10

// point is the JSON object of a point.
type point struct {
	Tenant     jsontext.Value `json:"tenant"`
	MetricName jsontext.Value `json:"metricName"`
	Tags       jsontext.Value `json:"tags"`
	TS         jsontext.Value `json:"ts"`
	Value      jsontext.Value `json:"value"`
	// Others holds unknown fields. They are ignored, except fields whose names differ from the names of known fields
	// only in case: if "Tags" were ignored, the point would belong to another series.
	Others map[string]jsontext.Value `json:",embed"`
}

var pointFields = []string{"tenant", "metricName", "tags", "ts", "value"}

// sample is a parsed point.
type sample struct {
	tenant string
	labels labels.Labels
	t      int64 // milliseconds
	v      float64
}

// parsePoint parses a point. Its errors are of type *problem.
func parsePoint(raw []byte) (s sample, err error) {
	var p point
	if err := json.Unmarshal(raw, &p); err != nil {
		return s, unreadableBody(err)
	}
	for name := range p.Others {
		is := func(field string) bool { return strings.EqualFold(field, name) }
		if i := slices.IndexFunc(pointFields, is); i >= 0 {
			return s, &problem{pointFields[i], fmt.Sprintf("must be written %q: names are case-sensitive", name)}
		}
	}
	if !isMissing(p.Tenant) {
		if json.Unmarshal(p.Tenant, &s.tenant) != nil || s.tenant == "" {
			return s, &problem{"tenant", "must be a non-empty string"}
		}
	}
	name := ""
	if isMissing(p.MetricName) || json.Unmarshal(p.MetricName, &name) != nil || name == "" {
		return s, &problem{"metricName", "must be a non-empty string"}
	}
	if s.labels, err = parseTags(name, p.Tags); err != nil {
		return s, err
	}
	if s.t, err = parseTS(p.TS); err != nil {
		return s, err
	}
	s.v, err = parseValue(p.Value)
	return s, err
}

// unreadableBody returns the problem of a body that has no readable point.
func unreadableBody(err error) *problem {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &problem{"", "must be an object with metricName, ts and value, and optionally tags"}
	}
	field := strings.Join(slices.Collect(syntax.JSONPointer.Tokens()), ".")
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &problem{field, "appears twice"}
	}
	return &problem{field, "isn't valid: " + syntax.Err.Error()}
}

// isMissing reports whether a field is missing or null.
func isMissing(raw jsontext.Value) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

func parseTags(name string, raw jsontext.Value) (labels.Labels, error) {
	if len(raw) > maxTags {
		return labels.EmptyLabels(), &problem{"tags", fmt.Sprintf("has %d bytes; the maximum is %d", len(raw), maxTags)}
	}
	var tags map[string]*string
	if !isMissing(raw) && json.Unmarshal(raw, &tags) != nil {
		return labels.EmptyLabels(), &problem{"tags", "must be an object whose values are strings"}
	}
	b := labels.NewScratchBuilder(len(tags) + 1)
	b.Add(labels.MetricName, name)
	for key, value := range tags {
		switch {
		case key == "":
			return labels.EmptyLabels(), &problem{"tags", "has a tag without a name"}
		case key == labels.MetricName:
			return labels.EmptyLabels(), &problem{"tags." + key, "is the metric name; set it as metricName"}
		case value == nil || *value == "":
			return labels.EmptyLabels(), &problem{"tags." + key, "must be a non-empty string"}
		}
		b.Add(key, *value)
	}
	b.Sort()
	return b.Labels(), nil
}

// errTime is the error text of a malformed time.
const errTime = "must be an RFC 3339 time, such as 2020-08-24T16:23:54Z, or Unix seconds"

func parseTS(raw jsontext.Value) (int64, error) {
	wrong := &problem{"ts", errTime}
	if isMissing(raw) {
		return 0, wrong
	}
	if raw[0] == '"' {
		text := ""
		if json.Unmarshal(raw, &text) != nil {
			return 0, wrong
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return 0, wrong
		}
		return t.UnixMilli(), nil
	}
	t, ok := parseSeconds(string(raw))
	if !ok {
		return 0, wrong
	}
	return t, nil
}

// parseSeconds converts seconds since 1970 to milliseconds.
func parseSeconds(text string) (ms int64, ok bool) {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		// Whole seconds are converted without a float, which might round them.
		return whole * 1000, whole > math.MinInt64/2000 && whole < math.MaxInt64/2000
	}
	if strings.Trim(text, "+-.0123456789eE") != "" {
		return 0, false // ParseFloat accepts more than JSON
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(s) || math.Abs(s) > math.MaxInt64/2000 {
		return 0, false
	}
	return int64(math.Round(s * 1000)), true
}

// textValues are numbers that JSON can't express, as Java's encoders write them.
var textValues = map[string]float64{`"NaN"`: math.NaN(), `"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1)}

func parseValue(raw jsontext.Value) (float64, error) {
	if v, ok := textValues[string(raw)]; ok {
		return v, nil
	}
	v := 0.0
	if isMissing(raw) || json.Unmarshal(raw, &v) != nil {
		return 0, &problem{"value", `must be a 64-bit number, "NaN", "Infinity" or "-Infinity"`}
	}
	return v, nil
}

// appendValue appends a value in the form that parseValue accepts; whole numbers get one decimal.
func appendValue(dst []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, v, format, -1, 64)
	if format == 'f' && bytes.IndexByte(dst[from:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendTime appends a time in milliseconds in RFC 3339, with a fraction only if it isn't zero.
func appendTime(dst []byte, ms int64) []byte {
	layout := "2006-01-02T15:04:05Z"
	if ms%1000 != 0 {
		layout = "2006-01-02T15:04:05.000Z"
	}
	return time.UnixMilli(ms).UTC().AppendFormat(dst, layout)
}
