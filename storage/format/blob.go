package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/prometheus/prometheus/model/labels"
)

// blobVersion is the first byte of a blob. A blob has the samples that one commit of a stream adds to the staging log:
// samples of many series of a slot and partition. A stream is the sequence of blobs of one writer for one slot and
// partition. It is divided into epochs. The first blob of an epoch with a sample of a series defines the series: its
// labels, and a number for it, counted from 1. So the blobs of an epoch can be read in order without other data.
//
//	+---------+--------------+-------------------+----------------+---------+---------+----
//	| version | CRC-32C of   | epoch: the seq of | before: number | record  | record  | …
//	| 1 byte  | the rest     | its first blob    | of series      |         |         |
//	|         | 4 bytes LE   | uvarint           | defined before |         |         |
//	+---------+--------------+-------------------+----------------+---------+---------+----
//
// A record starts with a byte: its kind in the low three bits, and for floats the number n of the value's bytes in the
// high five.
//
//	float      kind 0 | Δref varint | Δt varint | n bytes: the value's bits, without trailing zero bytes
//	float+st   kind 1 | Δref varint | Δt varint | Δst varint | n bytes
//	histogram  kind 2 | Δref varint | Δt varint | length uvarint | chunk.AppendHistogramBytes
//	define     kind 3 | number of labels uvarint | (length uvarint, text) for each name and value
//	tenant     kind 4 | length uvarint | text; the tenant of the series defined next
//	exemplar   kind 5 | Δref varint | Δt varint | length uvarint | AppendExemplar
//
// Δref and Δt are differences from the previous record (initially from 0), Δst is the difference from t.
const blobVersion = 1

const (
	recordFloat = iota
	recordFloatST
	recordHistogram
	recordDefine
	recordTenant
	recordExemplar
)

const (
	// BlobFull is the size in bytes at which a blob is full: no more samples are added to it.
	BlobFull = 320 << 10
	// maxRecord is the max size of a record in bytes. A blob can exceed BlobFull by one histogram and the labels of the
	// histogram's series. The labels are at most 64 KiB, so a blob stays below engine.MaxValue.
	maxRecord = 96 << 10
	// blobHeader is the size of the version and the checksum, which precede the body.
	blobHeader = 5
)

// ErrMalformedBlob is returned for a blob that can't be read.
var ErrMalformedBlob = errors.New("format: malformed blob")

// BlobWriter builds one blob at a time: Reset, then records, then Finish. Its zero value is ready for Reset.
type BlobWriter struct {
	buf    []byte
	ref    int64
	t      int64
	tenant string
}

// Reset starts a blob. epoch is the seq of the first blob of the blob's epoch, and before the number of series that
// earlier blobs of the epoch define.
func (w *BlobWriter) Reset(epoch int64, before uint32) {
	w.buf = append(w.buf[:0], blobVersion, 0, 0, 0, 0)
	w.buf = binary.AppendUvarint(w.buf, uint64(epoch))
	w.buf = binary.AppendUvarint(w.buf, uint64(before))
	w.ref, w.t, w.tenant = 0, 0, ""
}

// Finish completes the blob and returns its bytes, which are valid until the next Reset.
func (w *BlobWriter) Finish() []byte {
	binary.LittleEndian.PutUint32(w.buf[1:], crc32.Checksum(w.buf[blobHeader:], castagnoli))
	return w.buf
}

// Len returns the size of the blob so far in bytes.
func (w *BlobWriter) Len() int { return len(w.buf) }

// Define adds the definition of a tenant's series. The numbers of series are consecutive.
func (w *BlobWriter) Define(tenant string, ls labels.Labels) {
	if tenant != w.tenant {
		w.tenant = tenant
		w.buf = AppendString(append(w.buf, recordTenant), tenant)
	}
	w.buf = binary.AppendUvarint(append(w.buf, recordDefine), uint64(ls.Len()))
	ls.Range(func(l labels.Label) {
		w.buf = AppendString(AppendString(w.buf, l.Name), l.Value)
	})
}

// Float adds a float sample of the series with number ref: its timestamp and start timestamp in milliseconds, and its
// value's bits. A start timestamp of 0 means none.
func (w *BlobWriter) Float(ref uint32, t, st int64, v uint64) {
	kind := byte(recordFloat)
	if st != 0 {
		kind = recordFloatST
	}
	var value [8]byte
	binary.BigEndian.PutUint64(value[:], v)
	n := 8
	for n > 0 && value[n-1] == 0 {
		n--
	}
	w.buf = append(w.buf, kind|byte(n)<<3)
	w.appendPosition(ref, t)
	if st != 0 {
		w.buf = binary.AppendVarint(w.buf, st-t)
	}
	w.buf = append(w.buf, value[:n]...)
}

// Histogram adds a histogram encoded by chunk.AppendHistogramBytes.
func (w *BlobWriter) Histogram(ref uint32, t int64, encoded []byte) {
	w.appendEncoded(recordHistogram, ref, t, encoded)
}

// Exemplar adds an exemplar encoded by AppendExemplar.
func (w *BlobWriter) Exemplar(ref uint32, t int64, encoded []byte) {
	w.appendEncoded(recordExemplar, ref, t, encoded)
}

func (w *BlobWriter) appendEncoded(kind byte, ref uint32, t int64, encoded []byte) {
	w.buf = append(w.buf, kind)
	w.appendPosition(ref, t)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(encoded)))
	w.buf = append(w.buf, encoded...)
}

func (w *BlobWriter) appendPosition(ref uint32, t int64) {
	w.buf = binary.AppendVarint(w.buf, int64(ref)-w.ref)
	w.buf = binary.AppendVarint(w.buf, t-w.t)
	w.ref, w.t = int64(ref), t
}

// BlobSink receives the records of a blob in their order. An error of any method ends BlobReader.Walk, which returns
// it.
type BlobSink interface {
	// Define receives a series and its number in the blob's stream, before the samples of the series.
	Define(ref uint32, tenant string, ls labels.Labels) error
	// Float, Histogram and Exemplar receive one record each. encoded is valid only during the call. ref may be a number
	// that the blob doesn't define: it is defined by an earlier blob of the epoch, or else the stream is corrupt.
	Float(ref uint32, t, st int64, v uint64) error
	Histogram(ref uint32, t int64, encoded []byte) error
	Exemplar(ref uint32, t int64, encoded []byte) error
}

// BlobReader reads a blob: Open, then Walk. It can be reused.
type BlobReader struct {
	// Epoch is the seq of the first blob of the blob's epoch. Before is the number of series that earlier blobs of the
	// epoch define. Open sets both.
	Epoch  int64
	Before uint32
	body   []byte
	ref, t int64
	next   uint32
	tenant string
	labels labels.ScratchBuilder
}

// Open checks a blob's version and checksum and reads its header. It returns ErrMalformedBlob if these are invalid. The
// reader keeps b until the next Open.
func (r *BlobReader) Open(b []byte) error {
	if len(b) < blobHeader {
		return fmt.Errorf("%w: only %d bytes", ErrMalformedBlob, len(b))
	}
	if b[0] != blobVersion {
		return fmt.Errorf("%w: unknown version %d", ErrMalformedBlob, b[0])
	}
	if want, got := binary.LittleEndian.Uint32(b[1:]), crc32.Checksum(b[blobHeader:], castagnoli); want != got {
		return fmt.Errorf("%w: checksum %08x, computed %08x", ErrMalformedBlob, want, got)
	}
	r.body, r.ref, r.t, r.tenant = b[blobHeader:], 0, 0, ""
	epoch, err := r.uvarint()
	if err != nil {
		return err
	}
	before, err := r.uvarint()
	if err != nil {
		return err
	}
	if epoch > math.MaxInt64 || before >= math.MaxUint32 {
		return fmt.Errorf("%w: epoch %d or the number of preceding series, %d, is out of range",
			ErrMalformedBlob, epoch, before)
	}
	r.Epoch, r.Before, r.next = int64(epoch), uint32(before), uint32(before)+1
	return nil
}

// Walk passes the records of the opened blob to sink. It stops at the first error, which is the sink's,
// ErrMalformedBlob, or ErrMalformedLabels.
func (r *BlobReader) Walk(sink BlobSink) error {
	for len(r.body) > 0 {
		head := r.body[0]
		r.body = r.body[1:]
		var err error
		switch head & 7 {
		case recordFloat, recordFloatST:
			err = r.readFloat(head, sink)
		case recordHistogram:
			err = r.readEncoded(sink.Histogram)
		case recordDefine:
			err = r.readDefinition(sink)
		case recordTenant:
			var name []byte
			if name, r.body, err = CutString(r.body); err == nil {
				r.tenant = string(name)
			}
		case recordExemplar:
			err = r.readEncoded(sink.Exemplar)
		default:
			err = fmt.Errorf("%w: a record of unknown kind %d", ErrMalformedBlob, head&7)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *BlobReader) readFloat(head byte, sink BlobSink) error {
	if err := r.readPosition(); err != nil {
		return err
	}
	st, n := int64(0), int(head>>3)
	if head&7 == recordFloatST {
		d, err := r.varint()
		if err != nil {
			return err
		}
		st = r.t + d
	}
	if n > 8 || n > len(r.body) {
		return fmt.Errorf("%w: a value has an invalid length of %d bytes", ErrMalformedBlob, n)
	}
	var v uint64
	for _, c := range r.body[:n] {
		v = v<<8 | uint64(c)
	}
	if n > 0 {
		v <<= 8 * (8 - n)
	}
	r.body = r.body[n:]
	return sink.Float(uint32(r.ref), r.t, st, v)
}

// readEncoded reads a histogram or an exemplar.
func (r *BlobReader) readEncoded(take func(ref uint32, t int64, encoded []byte) error) error {
	if err := r.readPosition(); err != nil {
		return err
	}
	encoded, rest, err := CutString(r.body)
	if err != nil {
		return err
	}
	r.body = rest
	return take(uint32(r.ref), r.t, encoded)
}

func (r *BlobReader) readDefinition(sink BlobSink) error {
	n, err := r.uvarint()
	if err != nil {
		return err
	}
	r.labels.Reset()
	for range n {
		var name, value []byte
		if name, r.body, err = CutString(r.body); err != nil {
			return err
		}
		if value, r.body, err = CutString(r.body); err != nil {
			return err
		}
		r.labels.Add(string(name), string(value))
	}
	ref := r.next
	r.next++
	r.labels.Sort()
	return sink.Define(ref, r.tenant, r.labels.Labels())
}

func (r *BlobReader) readPosition() error {
	dref, err := r.varint()
	if err != nil {
		return err
	}
	dt, err := r.varint()
	if err != nil {
		return err
	}
	r.ref, r.t = r.ref+dref, r.t+dt
	if r.ref < 0 || r.ref > math.MaxUint32 {
		return fmt.Errorf("%w: series number %d is out of range", ErrMalformedBlob, r.ref)
	}
	return nil
}

func (r *BlobReader) uvarint() (uint64, error) {
	v, n := binary.Uvarint(r.body)
	if n <= 0 {
		return 0, fmt.Errorf("%w: truncated number", ErrMalformedBlob)
	}
	r.body = r.body[n:]
	return v, nil
}

func (r *BlobReader) varint() (int64, error) {
	v, n := binary.Varint(r.body)
	if n <= 0 {
		return 0, fmt.Errorf("%w: truncated number", ErrMalformedBlob)
	}
	r.body = r.body[n:]
	return v, nil
}

// MaxHistogramBytes is the max size of an encoded histogram that fits in a record.
const MaxHistogramBytes = maxRecord - 64
