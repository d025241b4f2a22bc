package importer

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
)

// Prefix identifies the first bytes of an input by their number and checksums. A run resumes an input only if the input
// starts with the bytes that earlier runs have read. The zero value is the empty prefix.
type Prefix struct {
	Bytes int64
	// head is the checksum of the first headBytes bytes, or of all bytes if there are fewer. sum is the checksum of all
	// bytes.
	head, sum uint64
}

// headBytes is the number of bytes of a non-seekable input that are buffered while it is compared with the prefix. If
// the input differs within these bytes, as other inputs usually do, it can still be read from its start.
const headBytes = 1 << 20

var prefixTable = crc64.MakeTable(crc64.ECMA)

// Add appends bytes to the prefix.
func (p *Prefix) Add(b []byte) {
	if p.Bytes < headBytes {
		p.head = crc64.Update(p.head, prefixTable, b[:min(int64(len(b)), headBytes-p.Bytes)])
	}
	p.sum = crc64.Update(p.sum, prefixTable, b)
	p.Bytes += int64(len(b))
}

// String encodes the prefix without spaces.
func (p Prefix) String() string { return fmt.Sprintf("%d-%016x-%016x", p.Bytes, p.head, p.sum) }

// ParsePrefix decodes the result of String.
func ParsePrefix(text string) (p Prefix, err error) {
	if _, err := fmt.Sscanf(text, "%d-%x-%x", &p.Bytes, &p.head, &p.sum); err != nil || p.Bytes < 0 ||
		p.String() != text {
		return Prefix{}, fmt.Errorf("importer: the checkpoint has an invalid position: %q", text)
	}
	return p, nil
}

// ErrOtherInput means that a non-seekable input starts like the input of the checkpoint but differs after headBytes.
var ErrOtherInput = errors.New(
	"importer: the input has changed since the checkpoint was written, after its first MiB; remove the checkpoint to " +
		"start from the beginning",
)

// Continue returns the part of an input after the prefix, and true. If the input doesn't start with the prefix, it
// returns the whole input and false, or ErrOtherInput if it can't be read again. in must be at its start, and the
// caller must not use it afterwards.
func (p Prefix) Continue(in io.Reader) (rest io.Reader, isSame bool, err error) {
	if p.Bytes == 0 {
		return in, true, nil
	}
	seeker, seeks := in.(io.Seeker)
	var start int64
	if seeks {
		start, err = seeker.Seek(0, io.SeekCurrent)
		seeks = err == nil // A pipe implements io.Seeker but fails to seek.
	}
	whole := func(read *bytes.Buffer) (io.Reader, bool, error) {
		if seeks {
			_, err := seeker.Seek(start, io.SeekStart)
			return in, false, err
		}
		if read == nil {
			return nil, false, ErrOtherInput
		}
		return io.MultiReader(read, in), false, nil
	}
	var head bytes.Buffer
	var have Prefix
	begin := io.LimitReader(in, min(p.Bytes, headBytes))
	if _, err := io.Copy(io.MultiWriter(&head, prefixWriter{&have}), begin); err != nil {
		return nil, false, err
	}
	if have.head != p.head || have.Bytes != min(p.Bytes, headBytes) {
		return whole(&head)
	}
	if _, err := io.Copy(prefixWriter{&have}, io.LimitReader(in, p.Bytes-have.Bytes)); err != nil {
		return nil, false, err
	}
	if have != p {
		return whole(nil)
	}
	return in, true, nil
}

// prefixWriter adds the bytes written to it to a Prefix.
type prefixWriter struct{ to *Prefix }

// Write implements io.Writer.
func (w prefixWriter) Write(b []byte) (int, error) {
	w.to.Add(b)
	return len(b), nil
}
