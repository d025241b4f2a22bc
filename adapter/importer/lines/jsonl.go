package lines

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/adapter/importer"
)

// JSONLines is the format of VictoriaMetrics' /api/v1/export and of cassia export. Each line has a series with samples:
//
//	{"metric":{"__name__":"up","job":"a"},"values":[1,null,"Infinity"],"timestamps":[1798761600125,…],"nan_bits":{"1":"7ff8000000000001"}}
//
// A null is a NaN with the bits in nan_bits. Without bits it is a stale marker, because VictoriaMetrics stores no other
// NaN.
var JSONLines = Format{
	name: "JSON lines", new: func(g *importer.Gatherer) parser { return &jsonLines{runTracker: runTracker{g: g}} },
}

type jsonLines struct {
	runTracker
	values []float64
	times  []int64
}

func (j *jsonLines) parseLine(text []byte, from linePosition, cut bool) error {
	if len(text) == 0 {
		return nil
	}
	l := jsonLine{scanner: scanner{b: text}, values: j.values[:0], times: j.times[:0]}
	err := l.parse()
	j.values, j.times = l.values, l.times
	if err != nil && cut {
		return fmt.Errorf("%w; the input ends within this line: it is truncated", err)
	}
	if err != nil {
		return err
	}
	var bad error
	into := j.startLine(l.metric, from, func() (labels.Labels, error) {
		ls, err := parseMetric(l.metric)
		bad = err
		return ls, err
	})
	if into == nil || bad != nil {
		return bad
	}
	for i, t := range l.times {
		j.g.Float(into, t, 0, l.values[i])
	}
	return nil
}

func (*jsonLines) parseDeferred() error                         { return nil }
func (*jsonLines) checkEnd() error                              { return nil }
func (*jsonLines) resumePosition(end linePosition) linePosition { return end }
func (*jsonLines) context() string                              { return "" }
func (*jsonLines) setContext(string)                            {}

// jsonLine is a parsed line.
type jsonLine struct {
	scanner
	metric []byte // the unparsed object
	values []float64
	times  []int64
	bits   []byte // the unparsed object
}

func (l *jsonLine) parse() error {
	if err := l.readObject(l.parseMember); err != nil {
		return err
	}
	if l.skipSpace(); l.i < len(l.b) {
		return l.syntaxError("the end of the line")
	}
	switch {
	case l.metric == nil:
		return errors.New(`missing "metric"`)
	case len(l.values) != len(l.times):
		return fmt.Errorf("has %d values but %d timestamps", len(l.values), len(l.times))
	case len(l.values) == 0:
		return errors.New("has no samples")
	}
	return l.setBits()
}

// parseMember parses a member of the line's object.
func (l *jsonLine) parseMember(name []byte) (err error) {
	from := l.i
	switch string(name) {
	case "metric":
		if err = l.skipValue(0); err == nil && l.metric != nil {
			return errors.New(`has "metric" twice`)
		}
		l.metric = l.b[from:l.i]
	case "values":
		if len(l.values) > 0 {
			return errors.New(`has "values" twice`)
		}
		err = l.readArray(func() error {
			v, err := l.parseFloat()
			l.values = append(l.values, v)
			return err
		})
	case "timestamps":
		if len(l.times) > 0 {
			return errors.New(`has "timestamps" twice`)
		}
		err = l.readArray(func() error {
			t, err := strconv.ParseInt(string(l.readNumber()), 10, 64)
			l.times = append(l.times, t)
			if err != nil {
				return l.syntaxError("a timestamp in milliseconds")
			}
			return nil
		})
	case "nan_bits":
		err = l.skipValue(0)
		l.bits = l.b[from:l.i]
	default:
		err = l.skipValue(0)
	}
	return err
}

// parseFloat parses a value.
func (l *jsonLine) parseFloat() (float64, error) {
	if l.i < len(l.b) {
		switch l.b[l.i] {
		case 'n':
			return math.Float64frombits(value.StaleNaN), l.readWord("null")
		case '"':
			text, err := l.readQuoted()
			if err != nil {
				return 0, err
			}
			switch string(text) {
			case `"Infinity"`, `"Inf"`, `"infinity"`, `"inf"`:
				return math.Inf(1), nil
			case `"-Infinity"`, `"-Inf"`, `"-infinity"`, `"-inf"`:
				return math.Inf(-1), nil
			case `"NaN"`, `"nan"`:
				return math.Float64frombits(value.NormalNaN), nil
			}
			return 0, fmt.Errorf("the value %s is not a number", quoteText(text))
		}
	}
	text := l.readNumber()
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0, l.syntaxError("a number")
	}
	return v, nil
}

// setBits sets the bits of NaNs.
func (l *jsonLine) setBits() error {
	if l.bits == nil {
		return nil
	}
	s := scanner{b: l.bits}
	return s.readObject(func(name []byte) error {
		text, err := s.readQuoted()
		if err != nil {
			return err
		}
		i, err := strconv.Atoi(string(name))
		if err != nil || i < 0 || i >= len(l.values) {
			return fmt.Errorf("nan_bits refers to value %s, which doesn't exist", quoteText(name))
		}
		bits, err := strconv.ParseUint(string(text[1:len(text)-1]), 16, 64)
		if err != nil || !math.IsNaN(math.Float64frombits(bits)) || !math.IsNaN(l.values[i]) {
			return fmt.Errorf("nan_bits sets %s for value %d, which is not NaN", quoteText(text), i)
		}
		l.values[i] = math.Float64frombits(bits)
		return nil
	})
}

// parseMetric parses the labels of a series.
func parseMetric(text []byte) (labels.Labels, error) {
	s := scanner{b: text}
	b := labels.NewScratchBuilder(16)
	err := s.readObject(func(name []byte) error {
		value, err := s.readString()
		if err == nil {
			err = adapter.CheckLabelText(string(name), value)
		}
		if err == nil {
			b.Add(string(name), value)
		}
		return err
	})
	if err != nil {
		return labels.EmptyLabels(), err
	}
	b.Sort()
	ls := b.Labels()
	if name, twice := ls.HasDuplicateLabelNames(); twice {
		return ls, fmt.Errorf("has the label %s twice", quoteText([]byte(name)))
	}
	return ls, nil
}
