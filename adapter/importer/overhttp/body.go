package overhttp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
)

const (
	// contentType and contentEncoding are a body's.
	contentType     = "application/vnd.cassia.series"
	contentEncoding = "snappy"
	// bodyVersion is that of its format.
	bodyVersion = 1
	// headerSize is what stands before the series, bytes.
	headerSize = 1 + crc32.Size
)

var (
	// ErrMalformed means that a body isn't what its sender meant, or nothing that this package writes.
	ErrMalformed = errors.New("overhttp: malformed body")
	// ErrVersion means that a body is of a version that isn't known here.
	ErrVersion = errors.New("overhttp: unknown version of a body")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// What a series weighs, bytes: about what it takes in memory when it is decoded, or more. It follows from what stands
// before the samples, so that it is known before memory is found for them.
const (
	seriesWeight = 300
	labelWeight  = 32
	floatWeight  = 24
	// A bucket of a histogram takes a bit of its chunk at least, and 8 bytes in memory.
	histogramWeight     = 300
	histogramByteWeight = 64
)

// weightOf returns what a chunk weighs.
func weightOf(data []byte) (int64, error) {
	info, err := chunk.Header(data)
	if err != nil {
		return 0, err
	}
	weight := int64(info.Floats) * floatWeight
	if info.Histograms > 0 {
		weight += int64(info.Histograms)*histogramWeight + int64(len(data))*histogramByteWeight
	}
	return weight, nil
}

// appendSeries appends a series whose samples can be one chunk, and returns what it weighs.
func appendSeries(dst []byte, ls labels.Labels, samples *chunk.Samples) ([]byte, int64, error) {
	n := ls.Len()
	weight := int64(seriesWeight + n*labelWeight + int(ls.ByteSize()))
	dst = binary.AppendUvarint(dst, uint64(n))
	ls.Range(func(l labels.Label) {
		dst = appendText(dst, l.Name)
		dst = appendText(dst, l.Value)
	})
	data := chunk.AppendChunk(nil, samples)
	w, err := weightOf(data)
	if err != nil {
		return dst, 0, fmt.Errorf("overhttp: reading back a chunk of %s: %w", ls, err)
	}
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...), weight + w, nil
}

func appendText(dst []byte, text string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// encode makes a body of what appendSeries made of series.
func encode(series [][]byte) []byte {
	n := headerSize
	for _, s := range series {
		n += len(s)
	}
	plain := make([]byte, headerSize, n)
	for _, s := range series {
		plain = append(plain, s...)
	}
	plain[0] = bodyVersion
	binary.LittleEndian.PutUint32(plain[1:], crc32.Checksum(plain[headerSize:], castagnoli))
	return snappy.Encode(nil, plain)
}

// decode reads the series of a body that is decompressed. take is called with the weight of each before memory is allocated for it;
// its error ends the reading. The other errors wrap ErrMalformed or ErrVersion.
func decode(plain []byte, take func(weight int64) error) ([]storage.ImportedSeries, error) {
	if len(plain) < headerSize {
		return nil, fmt.Errorf("%w: the body has %d bytes", ErrMalformed, len(plain))
	}
	if plain[0] != bodyVersion {
		return nil, fmt.Errorf("%w: version %d; only version %d is supported", ErrVersion, plain[0], bodyVersion)
	}
	if crc32.Checksum(plain[headerSize:], castagnoli) != binary.LittleEndian.Uint32(plain[1:]) {
		return nil, fmt.Errorf("%w: its checksum doesn't match", ErrMalformed)
	}
	d := &decoder{rest: plain[headerSize:], take: take, builder: labels.NewScratchBuilder(16)}
	var list []storage.ImportedSeries
	for len(d.rest) > 0 {
		s, err := d.series()
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// decoder reads series.
type decoder struct {
	rest    []byte
	take    func(int64) error
	builder labels.ScratchBuilder
}

func (d *decoder) series() (s storage.ImportedSeries, err error) {
	n, err := d.uvarint("number of labels")
	if err != nil {
		return s, err
	}
	if n > uint64(len(d.rest))/2 { // A label takes two bytes at least.
		return s, fmt.Errorf("%w: a series has %d labels", ErrMalformed, n)
	}
	if err := d.take(seriesWeight + int64(n)*labelWeight); err != nil {
		return s, err
	}
	d.builder.Reset()
	for range n {
		name, err := d.text("name")
		if err != nil {
			return s, err
		}
		value, err := d.text("value")
		if err != nil {
			return s, err
		}
		if err := d.take(int64(len(name) + len(value))); err != nil {
			return s, err
		}
		if err := adapter.CheckLabelText(string(name), string(value)); err != nil {
			return s, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		d.builder.Add(string(name), string(value))
	}
	d.builder.Sort()
	s.Labels = d.builder.Labels()
	data, err := d.text("chunk")
	if err != nil {
		return s, err
	}
	weight, err := weightOf(data)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := d.take(weight); err != nil {
		return s, err
	}
	s.Samples = &chunk.Samples{}
	if err := chunk.Decode(data, s.Samples); err != nil {
		return s, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return s, nil
}

func (d *decoder) uvarint(what string) (uint64, error) {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 {
		return 0, fmt.Errorf("%w: truncated in a %s", ErrMalformed, what)
	}
	d.rest = d.rest[n:]
	return x, nil
}

// text returns bytes behind their length. They stay the body's.
func (d *decoder) text(what string) ([]byte, error) {
	n, err := d.uvarint(what)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.rest)) {
		return nil, fmt.Errorf("%w: truncated in a %s", ErrMalformed, what)
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text, nil
}
