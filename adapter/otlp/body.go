package otlp

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage/tenant"
)

var (
	errRead      = errors.New("otlp: reading the body")
	errCorrupt   = errors.New("otlp: corrupt gzip")
	errMalformed = errors.New("otlp: malformed message")
)

// decompressorBytes is the approximate memory of a gzip decompressor in bytes.
const decompressorBytes = 64 << 10

// readBody reads the request's body and decompresses it. It claims memory from share before allocating it.
func (h *handler) readBody(r *http.Request, gzipped bool, share *adapter.Share) ([]byte, error) {
	of := tenant.FromContext(r.Context())
	most, explain := adapter.BodyLimit(h.opts.Limiter, of, h.opts.MaxBody)
	if r.ContentLength > most {
		return nil, explain(fmt.Errorf("%w: the body has %d bytes; the maximum is %d",
			adapter.ErrTooLarge, r.ContentLength, most))
	}
	wire := &countingReader{r: r.Body, limit: most}
	defer func() { h.metrics.received.Add(float64(wire.n)) }()
	if !gzipped {
		body, err := adapter.ReadAll(wire, min(most, h.opts.MaxDecoded), r.ContentLength, share)
		return body, explain(readError(err))
	}
	if err := share.Claim(decompressorBytes); err != nil {
		return nil, err
	}
	plain, err := gzip.NewReader(wire)
	if err != nil {
		return nil, explain(corruptError(err))
	}
	decoded, explain := adapter.BodyLimit(h.opts.Limiter, of, h.opts.MaxDecoded)
	body, err := adapter.ReadAll(plain, decoded, -1, share)
	return body, explain(corruptError(err))
}

// corruptError marks errors of the compressed data, to distinguish them from errors of the connection.
func corruptError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return readError(err)
}

// readError classifies errors of the connection.
func readError(err error) error {
	if err == nil || errors.Is(err, adapter.ErrTooLarge) || errors.Is(err, adapter.ErrBusy) {
		return err
	}
	return fmt.Errorf("%w: %w", errRead, err)
}

// countingReader counts the bytes it reads and stops at a limit.
type countingReader struct {
	r        io.Reader
	n, limit int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if c.n += int64(n); c.n > c.limit {
		return n, fmt.Errorf("%w: the maximum is %d bytes", adapter.ErrTooLarge, c.limit)
	}
	return n, err
}
