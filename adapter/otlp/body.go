package otlp

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cassia-db/cassia/adapter"
)

var (
	errRead      = errors.New("otlp: reading the body")
	errCorrupt   = errors.New("otlp: corrupt gzip")
	errMalformed = errors.New("otlp: malformed message")
)

// firstRead is how much room a body of unknown length gets at first, bytes, and greatestFirstRead one that says how
// long it is; it then doubles, so that nobody holds memory by a promise.
const (
	firstRead         = 64 << 10
	greatestFirstRead = 1 << 20
)

// readBody reads the request's body, decompressed. Its memory is claimed from share before it is found.
func (h *handler) readBody(r *http.Request, gzipped bool, share *adapter.Share) ([]byte, error) {
	if r.ContentLength > h.opts.MaxBody {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are taken", adapter.ErrTooLarge, r.ContentLength, h.opts.MaxBody)
	}
	wire := &countingReader{r: r.Body, limit: h.opts.MaxBody}
	defer func() { h.metrics.received.Add(float64(wire.n)) }()
	if !gzipped {
		return readAll(wire, min(h.opts.MaxBody, h.opts.MaxDecoded), r.ContentLength, share)
	}
	if err := share.Take(firstRead); err != nil { // the decompressor's own
		return nil, err
	}
	plain, err := gzip.NewReader(wire)
	if err != nil {
		return nil, readError(err)
	}
	return readAll(plain, h.opts.MaxDecoded, -1, share)
}

// readAll reads to the end; more than limit bytes are adapter.ErrTooLarge.
func readAll(r io.Reader, limit, length int64, share *adapter.Share) ([]byte, error) {
	size := int64(firstRead)
	if length >= 0 {
		size = min(length+1, greatestFirstRead) // the end is seen without growing
	}
	if err := share.Take(size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, size)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, fmt.Errorf("%w: decoded, it has more than %d bytes", adapter.ErrTooLarge, limit)
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, readError(err)
		case len(body) == cap(body):
			grown := min(2*int64(cap(body)), limit+1)
			if err := share.Take(grown); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, grown), body...)
		}
	}
}

// readError tells what is wrong with the bytes from what is wrong with the connection.
func readError(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, adapter.ErrTooLarge):
		return err
	case errors.As(err, &large):
		return fmt.Errorf("%w: at most %d bytes are taken", adapter.ErrTooLarge, large.Limit)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if _, ok := errors.AsType[flate.CorruptInputError](err); ok {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return fmt.Errorf("%w: %w", errRead, err)
}

// countingReader counts what it reads, and stops at a limit.
type countingReader struct {
	r        io.Reader
	n, limit int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if c.n += int64(n); c.n > c.limit {
		return n, fmt.Errorf("%w: at most %d bytes are taken", adapter.ErrTooLarge, c.limit)
	}
	return n, err
}
