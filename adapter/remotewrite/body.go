package remotewrite

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/golang/snappy"

	"github.com/cassia-db/cassia/adapter"
)

var (
	errTooLarge = errors.New("remotewrite: request too large")
	errBusy     = errors.New("remotewrite: too many bytes in flight")
	errCorrupt  = errors.New("remotewrite: corrupt snappy block")
	errRead     = errors.New("remotewrite: reading the body")
)

// keepBuffer is the max size in bytes of a buffer that is kept for the next request.
const keepBuffer = 4 << 20

// body holds one request's bytes, compressed and decompressed, and their claims on the budget.
type body struct {
	compressed, decoded []byte
	share               adapter.Share
}

// claim claims n bytes of the budget until release.
func (b *body) claim(n int64) error {
	if b.share.Claim(n) != nil {
		return errBusy
	}
	return nil
}

// release returns the claimed bytes and drops buffers that are too large to keep.
func (b *body) release() {
	b.share.Release()
	if cap(b.compressed) > keepBuffer {
		b.compressed = nil
	}
	if cap(b.decoded) > keepBuffer {
		b.decoded = nil
	}
}

// read reads a request's body of at most limit bytes. It claims bytes as they arrive, so that a sender that announces a
// large body without sending it claims little.
func (b *body) read(r *http.Request, limit int64) error {
	b.compressed = b.compressed[:0]
	if r.ContentLength > limit {
		return fmt.Errorf("%w: the body has %d bytes; the maximum is %d", errTooLarge, r.ContentLength, limit)
	}
	room := min(adapter.FirstRead, limit)
	if known := r.ContentLength; known >= 0 && known < room {
		room = known
	}
	for {
		if err := b.growBuffer(room + 1); err != nil { // one more byte, to read EOF without growing again
			return err
		}
		n, err := r.Body.Read(b.compressed[len(b.compressed) : room+1])
		b.compressed = b.compressed[:len(b.compressed)+n]
		var cut *http.MaxBytesError
		switch size := int64(len(b.compressed)); {
		case size > limit || errors.As(err, &cut):
			return fmt.Errorf("%w: the body has more than %d bytes", errTooLarge, min(limit, size))
		case err == io.EOF && size < r.ContentLength:
			return fmt.Errorf("%w: received only %d of %d bytes", errRead, size, r.ContentLength)
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", errRead, err)
		case size > room:
			room = nextBufferSize(room, r.ContentLength, limit)
		}
	}
}

// nextBufferSize returns the next size of a body's buffer: larger than room, but not above the announced length or the
// limit.
func nextBufferSize(room, announced, limit int64) int64 {
	next := min(adapter.NextBuffer(room)+1, limit)
	if announced > room {
		next = min(next, announced)
	}
	return next
}

// growBuffer enlarges the buffer to size bytes in total.
func (b *body) growBuffer(size int64) error {
	if taken := b.share.Claimed(); size > taken {
		if err := b.claim(size - taken); err != nil {
			return err
		}
	}
	if int64(cap(b.compressed)) < size {
		b.compressed = append(make([]byte, 0, size), b.compressed...)
	}
	return nil
}

// decompress decodes the snappy block. The length in the header of the block may be false, so it is checked against the
// limit and against the max expansion of the compressed bytes before memory is allocated.
func (b *body) decompress(limit int64) error {
	size, err := snappy.DecodedLen(b.compressed)
	if err != nil {
		if errors.Is(err, snappy.ErrTooLarge) {
			return fmt.Errorf("%w: decoded, the body has more than %d bytes", errTooLarge, limit)
		}
		return fmt.Errorf("%w: the length is missing", errCorrupt)
	}
	if int64(size) > limit {
		return fmt.Errorf("%w: decoded, the body has %d bytes; the maximum is %d", errTooLarge, size, limit)
	}
	// Snappy's densest element copies 64 bytes and is 3 bytes long.
	if size > len(b.compressed)/3*64+64 {
		return fmt.Errorf("%w: claims %d bytes, more than %d compressed bytes can hold",
			errCorrupt, size, len(b.compressed))
	}
	if err := b.claim(int64(size)); err != nil {
		return err
	}
	if cap(b.decoded) < size {
		b.decoded = make([]byte, size)
	}
	if b.decoded, err = snappy.Decode(b.decoded[:cap(b.decoded)], b.compressed); err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return nil
}
