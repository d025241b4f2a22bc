package victoria

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
)

// nativeReader reads the native format, as defined by VictoriaMetrics' lib/protoparser/native and lib/storage:
//
//	+----------+----------+----------+------+----------+-------+----------+…
//	| min time | max time | name len | name | block len| block | name len |…
//	| 8 bytes  | 8 bytes  | 4 bytes  |      | 4 bytes  |       |          |
//	+----------+----------+----------+------+----------+-------+----------+…
//
// Numbers are big-endian. Times are zigzag-encoded milliseconds. A name is the metric's name, followed by the names and
// values of labels in turn, each terminated by \x01. The bytes 0, 1 and 2 within them are encoded as \x00 followed by
// '0', '1' or '2'.
type nativeReader struct {
	r *bufio.Reader
	// Prefix is the part of the input before the next record.
	importer.Prefix
	minMS, maxMS int64
	name, block  []byte
	d            blockDecoder
}

const (
	headerBytes = 16
	// maxRecord bounds names and blocks, as in VictoriaMetrics.
	maxRecord = 1 << 20
)

// errNotNative means that the input has another format or is damaged.
var errNotNative = errors.New("not VictoriaMetrics' native format, or damaged")

// newNativeReader reads the header.
func newNativeReader(r io.Reader) (*nativeReader, error) {
	n := &nativeReader{r: bufio.NewReaderSize(r, 256<<10)}
	head := make([]byte, headerBytes)
	if _, err := io.ReadFull(n.r, head); err != nil {
		return nil, truncatedError(err)
	}
	n.Add(head)
	n.minMS, n.maxMS = decodeZigzag(binary.BigEndian.Uint64(head)), decodeZigzag(binary.BigEndian.Uint64(head[8:]))
	if n.minMS > n.maxMS {
		return nil, errNotNative
	}
	return n, nil
}

// truncatedError returns the error for an input that ends early because of err.
func truncatedError(err error) error {
	var busy *fetch.BusyError
	if errors.As(err, &busy) {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the input ends within a record: it is truncated, or not VictoriaMetrics' native format")
	}
	return err
}

func decodeZigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// next reads a record, or returns io.EOF after the last one.
func (n *nativeReader) next() (err error) {
	if n.name, err = n.readField(n.name); err != nil {
		return err
	}
	if n.block, err = n.readField(n.block); errors.Is(err, io.EOF) {
		return truncatedError(err)
	}
	return err
}

// readField reads bytes preceded by their length.
func (n *nativeReader) readField(into []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(n.r, size[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return into, io.EOF
		}
		return into, truncatedError(err)
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > maxRecord {
		return into, fmt.Errorf("record of %d bytes: %w", length, errNotNative)
	}
	if int(length) > cap(into) {
		into = make([]byte, length)
	}
	into = into[:length]
	if _, err := io.ReadFull(n.r, into); err != nil {
		return into, truncatedError(err)
	}
	n.Add(size[:])
	n.Add(into)
	return into, nil
}

// gatherSamples passes the samples of the record to a Gatherer.
func (n *nativeReader) gatherSamples(g *importer.Gatherer) error {
	into, known := g.Known(n.name)
	if !known {
		ls, err := parseName(n.name)
		if err != nil {
			return err
		}
		into = g.Series(n.name, ls)
	}
	if into == nil {
		return nil
	}
	if err := n.d.decode(n.block); err != nil {
		return err
	}
	for i, t := range n.d.times {
		if t >= n.minMS && t <= n.maxMS {
			g.Float(into, t, 0, n.d.values[i])
		}
	}
	return nil
}

// parseName parses the labels of a series.
func parseName(b []byte) (labels.Labels, error) {
	var texts []string
	for len(b) > 0 {
		end := bytes.IndexByte(b, 1)
		if end < 0 {
			return labels.EmptyLabels(), fmt.Errorf("reading the name of a series: %w", errNotNative)
		}
		text, err := unescape(b[:end])
		if err != nil {
			return labels.EmptyLabels(), err
		}
		texts, b = append(texts, text), b[end+1:]
	}
	if len(texts)%2 != 1 {
		return labels.EmptyLabels(), fmt.Errorf("reading the name of a series: %w", errNotNative)
	}
	s := labels.NewScratchBuilder(len(texts)/2 + 1)
	if err := adapter.CheckLabelText("", texts[0]); err != nil {
		return labels.EmptyLabels(), err
	}
	if texts[0] != "" {
		s.Add(labels.MetricName, texts[0])
	}
	for i := 1; i < len(texts); i += 2 {
		if err := adapter.CheckLabelText(texts[i], texts[i+1]); err != nil {
			return labels.EmptyLabels(), err
		}
		s.Add(texts[i], texts[i+1])
	}
	s.Sort()
	ls := s.Labels()
	if name, twice := ls.HasDuplicateLabelNames(); twice {
		return ls, fmt.Errorf("a series has the label %q twice", importer.Shorten(name))
	}
	return ls, nil
}

func unescape(b []byte) (string, error) {
	if bytes.IndexByte(b, 0) < 0 {
		return string(b), nil
	}
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] != 0 {
			out = append(out, b[i])
			continue
		}
		if i++; i == len(b) || b[i] < '0' || b[i] > '2' {
			return "", fmt.Errorf("reading the name of a series: %w", errNotNative)
		}
		out = append(out, b[i]-'0')
	}
	return string(out), nil
}
