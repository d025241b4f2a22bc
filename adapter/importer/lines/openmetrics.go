package lines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage/chunk"
)

// OpenMetrics is OpenMetrics text, version 1.0, as Prometheus' parser reads it. Every sample must have a timestamp.
var OpenMetrics = Format{name: "OpenMetrics", new: func(g *importer.Gatherer) parser {
	return &openMetrics{runTracker: runTracker{g: g}, symbols: labels.NewSymbolTable()}
}}

const (
	// pieceBytes is the size of text that is parsed at once.
	pieceBytes = 64 << 10
	// maxMetricLine bounds a line of OpenMetrics in bytes; it is far above the limits of labels.
	maxMetricLine = 1 << 20
)

// openMetrics collects lines into pieces for Prometheus' parser. Each piece starts with the TYPE line of its metric
// family and ends with # EOF. Lines depend on no other line except the TYPE line.
type openMetrics struct {
	runTracker
	symbols *labels.SymbolTable
	// typ is the last TYPE line, with its newline.
	typ string
	// piece is the text to parse. It starts with typ. starts are the positions of the lines after typ, with their
	// context.
	piece  []byte
	starts []linePosition
	// hasEOF is set after the line # EOF, which starts at eofAt.
	hasEOF bool
	eofAt  linePosition
}

var (
	eofLine = []byte("# EOF")
	typeTag = []byte("# TYPE ")
)

func (o *openMetrics) parseLine(text []byte, from linePosition, cut bool) error {
	switch {
	case o.hasEOF:
		return errors.New("there is text after # EOF; import multiple files one after the other")
	case bytes.Equal(text, eofLine):
		o.hasEOF, o.eofAt = true, from
		return nil
	case cut: // The truncated line may be valid, for example a timestamp without its last digits.
		return errors.New("the text ends within this line, without # EOF: it is truncated")
	case len(text) == 0:
		return errors.New(
			"the line is empty, which OpenMetrics doesn't allow; the older Prometheus text format isn't supported",
		)
	case len(text) > maxMetricLine:
		return fmt.Errorf("has %d bytes; the maximum is %d", len(text), maxMetricLine)
	}
	isType := bytes.HasPrefix(text, typeTag)
	if isType || len(o.piece) >= pieceBytes {
		if err := o.parseDeferred(); err != nil {
			return err
		}
	}
	from.context = o.typ
	if isType {
		o.typ = ""
	}
	if len(o.starts) == 0 {
		o.piece = append(o.piece[:0], o.typ...)
	}
	o.piece = append(append(o.piece, text...), '\n')
	o.starts = append(o.starts, from)
	if isType {
		o.typ = string(text) + "\n"
		return o.parseDeferred()
	}
	return nil
}

// parseDeferred parses the current piece and starts a new one.
func (o *openMetrics) parseDeferred() error {
	if len(o.starts) == 0 {
		return nil
	}
	o.piece = append(append(o.piece, eofLine...), '\n')
	done, err := o.parse()
	if err != nil { // the parser stops at the invalid line
		err = &lineError{o.starts[done], err}
	}
	o.starts = o.starts[:0]
	return err
}

// parse passes the samples of the piece to the Gatherer and returns the number of valid lines.
func (o *openMetrics) parse() (done int, err error) {
	p := textparse.NewOpenMetricsParser(o.piece, o.symbols)
	if bytes.Count(o.piece, []byte("\n")) > len(o.starts)+1 { // one line is the type
		done--
	}
	for ; ; done++ {
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF):
			return done, nil
		case err != nil:
			return min(max(done, 0), len(o.starts)-1), errors.New(importer.Shorten(err.Error()))
		case entry != textparse.EntrySeries:
			continue
		}
		if err := o.addSample(p, done); err != nil {
			return done, err
		}
	}
}

// addSample adds the parser's current sample.
func (o *openMetrics) addSample(p textparse.Parser, line int) error {
	name, at, v := p.Series()
	if at == nil {
		return fmt.Errorf("%s has no timestamp", importer.Shorten(string(name)))
	}
	into := o.startLine(name, o.starts[line], func() (ls labels.Labels, err error) {
		p.Labels(&ls)
		return ls, nil
	})
	if into == nil {
		return nil
	}
	t, err := exactTime(o.piece, name, *at)
	if err == nil {
		o.g.Float(into, t, 0, v)
	}
	return err
}

// exactTime returns the timestamp of a sample in milliseconds. The parser multiplies seconds by 1000 and truncates the
// product, which turns 1.001 into 1000 ms. The intended millisecond is the nearest one within the precision of floats.
func exactTime(text, name []byte, parsed int64) (int64, error) {
	// name is a slice of text, and the capacities of both slices end at the same address.
	line := text[cap(text)-cap(name)+len(name):]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	fields := bytes.SplitN(bytes.TrimLeft(line, " "), []byte(" "), 3)
	if len(fields) < 2 {
		return parsed, nil
	}
	seconds, err := strconv.ParseFloat(string(fields[1]), 64)
	if err != nil {
		return parsed, nil // the parser returns the error of a bad timestamp
	}
	const near = 0.001 // in milliseconds; floats of current times in seconds are four times as precise
	ms := seconds * 1000
	if math.IsNaN(ms) || math.Abs(ms) > 1<<53 {
		return 0, fmt.Errorf("the timestamp %s is out of range", importer.Shorten(string(fields[1])))
	}
	if next := math.Round(ms); math.Abs(next-ms) < near {
		return int64(next), nil
	}
	return parsed, nil
}

func (o *openMetrics) checkEnd() error {
	if !o.hasEOF {
		return errors.New("the text ends without # EOF, so it may be truncated")
	}
	return nil
}

// resumePosition implements parser. If the input ends with # EOF, it returns the start of that line, because samples
// that are added to the input later precede the line.
func (o *openMetrics) resumePosition(end linePosition) linePosition {
	if o.hasEOF {
		end = o.eofAt
	}
	end.context = o.typ
	return end
}

// context implements parser. After the line # EOF, the context is that line.
func (o *openMetrics) context() string {
	if o.hasEOF {
		return string(eofLine)
	}
	return o.typ
}

func (o *openMetrics) setContext(context string) {
	if o.hasEOF = context == string(eofLine); !o.hasEOF {
		o.typ = context
	}
}

// runTracker tracks the current run: the latest consecutive lines with the same series.
type runTracker struct {
	g    *importer.Gatherer
	name []byte
	tail importer.Tail
	// begin is the position of the first line of the run.
	begin linePosition
}

// startLine returns the samples to which the line at from must append its own, or nil if the series isn't selected.
func (r *runTracker) startLine(name []byte, from linePosition, parse func() (labels.Labels, error)) *chunk.Samples {
	into, known := r.g.Known(name)
	if known && into == r.tail.Of && bytes.Equal(name, r.name) {
		return into
	}
	if !known {
		ls, err := parse()
		if err != nil {
			return nil
		}
		into = r.g.Series(name, ls)
	}
	r.name, r.begin, r.tail = append(r.name[:0], name...), from, importer.Tail{Of: into}
	if into != nil {
		r.tail.From = into.Len()
	}
	return into
}

// lastRun returns the tail with the samples of the current run, and the position of the first line of the run. The
// caller must then take all samples that precede the tail.
func (r *runTracker) lastRun() (importer.Tail, linePosition) {
	t := r.tail
	r.tail.From = 0
	return t, r.begin
}

// quoteText truncates text for messages.
func quoteText(b []byte) string {
	return strconv.Quote(importer.Shorten(strings.ToValidUTF8(string(b), "\uFFFD")))
}
