package importer

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
)

// Prefix identifies the first bytes of an input by their number and content, so that a run continues only an input that begins with the bytes that earlier
// runs have read. The zero value is that of no bytes.
type Prefix struct {
	Bytes int64
	// head and sum are checksums of up to headBytes of them, and of all.
	head, sum uint64
}

// headBytes is how much of an input that can't be read twice is held until it is known whether it is the same: other inputs usually differ early.
const headBytes = 1 << 20

var prefixTable = crc64.MakeTable(crc64.ECMA)

// Add adds bytes that follow.
func (p *Prefix) Add(b []byte) {
	if p.Bytes < headBytes {
		p.head = crc64.Update(p.head, prefixTable, b[:min(int64(len(b)), headBytes-p.Bytes)])
	}
	p.sum = crc64.Update(p.sum, prefixTable, b)
	p.Bytes += int64(len(b))
}

// String encodes it, without spaces.
func (p Prefix) String() string { return fmt.Sprintf("%d-%016x-%016x", p.Bytes, p.head, p.sum) }

// ParsePrefix decodes what String returned.
func ParsePrefix(text string) (p Prefix, err error) {
	if _, err := fmt.Sscanf(text, "%d-%x-%x", &p.Bytes, &p.head, &p.sum); err != nil || p.Bytes < 0 || p.String() != text {
		return Prefix{}, fmt.Errorf("importer: the checkpoint has an invalid position: %q", text)
	}
	return p, nil
}

// ErrOtherInput means that an input which can't be read twice begins as the one of the checkpoint, but isn't the same.
var ErrOtherInput = errors.New("importer: the input has changed since the checkpoint was written, after its first MiB; remove the checkpoint to start from the beginning")

// Continue returns the part of an input that follows a prefix; isSame is true then. An input that doesn't begin with this prefix is returned whole. in is at
// its start, and must not be used otherwise afterwards.
func (p Prefix) Continue(in io.Reader) (rest io.Reader, isSame bool, err error) {
	if p.Bytes == 0 {
		return in, true, nil
	}
	seeker, seeks := in.(io.Seeker)
	var start int64
	if seeks {
		start, err = seeker.Seek(0, io.SeekCurrent)
		seeks = err == nil // A pipe has the method, but can't.
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
	if _, err := io.Copy(io.MultiWriter(&head, prefixWriter{&have}), io.LimitReader(in, min(p.Bytes, headBytes))); err != nil {
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

// prefixWriter adds bytes that are written to it.
type prefixWriter struct{ to *Prefix }

// Write implements io.Writer.
func (w prefixWriter) Write(b []byte) (int, error) {
	w.to.Add(b)
	return len(b), nil
}
