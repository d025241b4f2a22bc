package adapter

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// FirstRead is the initial buffer of a body, bytes. It then grows with the bytes that have arrived, so that a client that only announces a
// large body holds little.
const FirstRead = 4 << 10

// NextBuffer returns how large the buffer of a body becomes that has filled one of so many bytes: four times as large while it is small, and
// twice after that.
func NextBuffer(size int64) int64 {
	if size < 256<<10 {
		return 4 * size
	}
	return 2 * size
}

// ReadAll reads to the end; more than limit bytes are ErrTooLarge. length is the one that the sender claims, -1: none. The
// memory is claimed from share before it is allocated. Other errors are r's.
func ReadAll(r io.Reader, limit, length int64, share *Share) ([]byte, error) {
	if length > limit {
		return nil, fmt.Errorf("%w: the body has %d bytes; the maximum is %d", ErrTooLarge, length, limit)
	}
	size := int64(FirstRead)
	if length >= 0 {
		size = min(length+1, size) // the end is seen without growing
	}
	if err := share.Take(size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, size)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		var large *http.MaxBytesError
		switch {
		case int64(len(body)) > limit:
			return nil, fmt.Errorf("%w: the body has more than %d bytes", ErrTooLarge, limit)
		case errors.Is(err, io.EOF):
			return body, nil
		case errors.As(err, &large):
			return nil, fmt.Errorf("%w: the maximum is %d bytes", ErrTooLarge, large.Limit)
		case err != nil:
			return nil, err
		case len(body) == cap(body):
			grown := min(NextBuffer(int64(cap(body))), limit+1)
			if length >= int64(len(body)) {
				grown = min(grown, length+1)
			}
			if err := share.Take(grown); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, grown), body...)
		}
	}
}
