package adapter

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// FirstRead is the initial size of a body's buffer in bytes. The buffer grows only as bytes arrive, so a client that
// announces a large body and doesn't send it uses little memory.
const FirstRead = 4 << 10

// NextBuffer returns the size to which a full body buffer of size bytes grows: four times size below 256 KiB, otherwise
// twice size.
func NextBuffer(size int64) int64 {
	if size < 256<<10 {
		return 4 * size
	}
	return 2 * size
}

// ReadAll reads r to its end. It returns ErrTooLarge if there are more than limit bytes. length is the body's length
// according to the sender, -1 if unknown. Memory is claimed from share before it is allocated. Errors of r are returned
// unchanged.
func ReadAll(r io.Reader, limit, length int64, share *Share) ([]byte, error) {
	if length > limit {
		return nil, fmt.Errorf("%w: the body has %d bytes; the maximum is %d", ErrTooLarge, length, limit)
	}
	size := int64(FirstRead)
	if length >= 0 {
		size = min(length+1, size) // one more byte than the body: EOF is read without growing the buffer
	}
	if err := share.Claim(size); err != nil {
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
			if err := share.Claim(grown); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, grown), body...)
		}
	}
}
