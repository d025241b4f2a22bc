package overhttp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// contentType and contentEncoding are the headers of a body.
	contentType     = "application/vnd.cassia.series"
	contentEncoding = "snappy"
	// bodyVersion is the version of the body format.
	bodyVersion = 2
	// headerSize is the size of the version and the checksum, in bytes.
	headerSize = 1 + crc32.Size
)

var (
	// errMalformed means that a body was damaged in transit or isn't in the format of this package.
	errMalformed = errors.New("overhttp: malformed body")
	// errVersion means that a body has an unsupported version.
	errVersion = errors.New("overhttp: unknown version of a body")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The weight of a series estimates the memory of its decoded form in bytes, and may be too high. It is computed from
// labels and chunk headers, before memory for the samples is allocated.
const (
	seriesWeight = 300
	labelWeight  = 32
	floatWeight  = 24
	// A bucket of a histogram takes at least one bit in its chunk and 8 bytes in memory, so a byte of a chunk weighs
	// 64.
	histogramWeight     = 300
	histogramByteWeight = 64
)

// weightOf returns the weight of a chunk.
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

// appendLabels appends the labels of a series and returns the weight of the series without its samples.
func appendLabels(dst []byte, ls labels.Labels) ([]byte, int64) {
	n := ls.Len()
	dst = binary.AppendUvarint(dst, uint64(n))
	ls.Range(func(l labels.Label) {
		dst = appendText(dst, l.Name)
		dst = appendText(dst, l.Value)
	})
	return dst, int64(seriesWeight + n*labelWeight + int(ls.ByteSize()))
}

// appendBuckets appends a series with buckets and returns its weight.
func appendBuckets(dst []byte, s *storage.ImportedBuckets) ([]byte, int64) {
	dst, weight := appendLabels(dst, s.Labels)
	dst = appendText(dst, string(rollup.AppendChunk(nil, s.Buckets, s.Resolution.Width(), 0)))
	return dst, weight + int64(s.Buckets.Len())*importer.BucketBytes
}

// appendSeries appends a series with at most chunk.MaxSamples samples and returns its weight.
func appendSeries(dst []byte, ls labels.Labels, samples *chunk.Samples) ([]byte, int64, error) {
	dst, weight := appendLabels(dst, ls)
	data := chunk.AppendChunk(nil, samples)
	w, err := weightOf(data)
	if err != nil {
		return dst, 0, fmt.Errorf("overhttp: decoding a chunk of series %s: %w", ls, err)
	}
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...), weight + w, nil
}

func appendText(dst []byte, text string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// encodeBody returns a body of series encoded by appendSeries.
func encodeBody(series [][]byte) []byte { return encodeRollups(rollup.Raw, series) }

// encodeRollups returns a body of series of one resolution, encoded by appendSeries or appendBuckets.
func encodeRollups(res rollup.Resolution, series [][]byte) []byte {
	n := headerSize + 1
	for _, s := range series {
		n += len(s)
	}
	plain := append(make([]byte, headerSize, n), byte(res))
	for _, s := range series {
		plain = append(plain, s...)
	}
	plain[0] = bodyVersion
	binary.LittleEndian.PutUint32(plain[1:], crc32.Checksum(plain[headerSize:], castagnoli))
	return snappy.Encode(nil, plain)
}

// decodeBody decodes the series of an uncompressed body. Before it allocates memory, it calls take with the weight of
// that memory, and returns take's error unchanged. All other errors wrap errMalformed or errVersion.
func decodeBody(
	plain []byte, take func(weight int64) error,
) (list []storage.ImportedSeries, buckets []storage.ImportedBuckets, err error) {
	if len(plain) < headerSize+1 {
		return nil, nil, fmt.Errorf("%w: the body has only %d bytes", errMalformed, len(plain))
	}
	if plain[0] != bodyVersion {
		return nil, nil, fmt.Errorf("%w: version %d; only version %d is supported", errVersion, plain[0], bodyVersion)
	}
	if crc32.Checksum(plain[headerSize:], castagnoli) != binary.LittleEndian.Uint32(plain[1:]) {
		return nil, nil, fmt.Errorf("%w: its checksum doesn't match", errMalformed)
	}
	res := rollup.Resolution(plain[headerSize])
	if res > rollup.OneHour {
		return nil, nil, fmt.Errorf("%w: unknown resolution %d", errMalformed, res)
	}
	d := &bodyReader{rest: plain[headerSize+1:], take: take, builder: labels.NewScratchBuilder(16)}
	for len(d.rest) > 0 {
		if res == rollup.Raw {
			s, err := d.series()
			if err != nil {
				return nil, nil, err
			}
			list = append(list, s)
			continue
		}
		s, err := d.buckets(res)
		if err != nil {
			return nil, nil, err
		}
		buckets = append(buckets, s)
	}
	return list, buckets, nil
}

// bodyReader decodes the series of a body.
type bodyReader struct {
	rest    []byte
	take    func(int64) error
	builder labels.ScratchBuilder
}

func (b *bodyReader) labels() (ls labels.Labels, err error) {
	n, err := b.uvarint("number of labels")
	if err != nil {
		return ls, err
	}
	if n > uint64(len(b.rest))/2 { // A label takes at least two bytes.
		return ls, fmt.Errorf("%w: a series has %d labels, more than the body can hold", errMalformed, n)
	}
	if err := b.take(seriesWeight + int64(n)*labelWeight); err != nil {
		return ls, err
	}
	b.builder.Reset()
	for range n {
		name, err := b.text("name")
		if err != nil {
			return ls, err
		}
		value, err := b.text("value")
		if err != nil {
			return ls, err
		}
		if err := b.take(int64(len(name) + len(value))); err != nil {
			return ls, err
		}
		if err := adapter.CheckLabelText(string(name), string(value)); err != nil {
			return ls, fmt.Errorf("%w: %w", errMalformed, err)
		}
		b.builder.Add(string(name), string(value))
	}
	b.builder.Sort()
	return b.builder.Labels(), nil
}

// buckets decodes a series with buckets of one resolution.
func (b *bodyReader) buckets(res rollup.Resolution) (s storage.ImportedBuckets, err error) {
	if s.Labels, err = b.labels(); err != nil {
		return s, err
	}
	data, err := b.text("chunk")
	if err != nil {
		return s, err
	}
	info, err := rollup.Header(data)
	if err == nil && info.Width != res.Width() {
		err = fmt.Errorf("buckets of %d ms", info.Width)
	}
	if err == nil && info.HasEmbedded {
		err = errors.New("aggregates contain no histograms and no sketches")
	}
	if err != nil {
		return s, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if err := b.take(int64(info.Count) * importer.BucketBytes); err != nil {
		return s, err
	}
	s.Resolution, s.Buckets = res, &rollup.Buckets{}
	if err := rollup.Decode(data, rollup.AllColumns, s.Buckets); err != nil {
		return s, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return s, nil
}

func (b *bodyReader) series() (s storage.ImportedSeries, err error) {
	if s.Labels, err = b.labels(); err != nil {
		return s, err
	}
	data, err := b.text("chunk")
	if err != nil {
		return s, err
	}
	weight, err := weightOf(data)
	if err != nil {
		return s, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if err := b.take(weight); err != nil {
		return s, err
	}
	s.Samples = &chunk.Samples{}
	if err := chunk.Decode(data, s.Samples); err != nil {
		return s, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return s, nil
}

func (b *bodyReader) uvarint(what string) (uint64, error) {
	x, n := binary.Uvarint(b.rest)
	if n <= 0 {
		return 0, fmt.Errorf("%w: truncated within a %s", errMalformed, what)
	}
	b.rest = b.rest[n:]
	return x, nil
}

// text returns the bytes after a length. They alias the body.
func (b *bodyReader) text(what string) ([]byte, error) {
	n, err := b.uvarint(what)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(b.rest)) {
		return nil, fmt.Errorf("%w: truncated within a %s", errMalformed, what)
	}
	text := b.rest[:n]
	b.rest = b.rest[n:]
	return text, nil
}
