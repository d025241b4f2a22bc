package lines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds a line in bytes.
const maxLine = 64 << 20

// errLongLine means that a line is longer than maxLine.
var errLongLine = fmt.Errorf(
	"the line is longer than %d MiB; max_rows_per_line=10000 makes VictoriaMetrics write shorter lines", maxLine>>20,
)

// reader reads lines and tracks its position.
type reader struct {
	linePosition // of the next line
	r            *bufio.Reader
	long         []byte
}

func newReader(r io.Reader, from linePosition) *reader {
	return &reader{r: bufio.NewReaderSize(r, 256<<10), linePosition: from}
}

// next returns a line without its newline, valid until the next call, or io.EOF after the last line. cut is set if the
// line is the end of the input and has no newline.
func (r *reader) next() (line []byte, cut bool, err error) {
	line, err = r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		r.long = r.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(r.long)+len(line) > maxLine {
				return nil, false, errLongLine
			}
			r.long = append(r.long, line...)
			line, err = r.r.ReadSlice('\n')
		}
		r.long = append(r.long, line...)
		line = r.long
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, false, err
	}
	r.Add(line)
	r.number++
	cut = err != nil
	for _, end := range []byte("\n\r") {
		if n := len(line); n > 0 && line[n-1] == end {
			line = line[:n-1]
		}
	}
	return line, cut, nil
}

// lineError is the error of an invalid line.
type lineError struct {
	at  linePosition
	err error
}

func (e *lineError) Error() string { return e.err.Error() }
func (e *lineError) Unwrap() error { return e.err }

// newLineError adds the line number to an error.
func newLineError(number int, err error) error { return fmt.Errorf("lines: line %d: %w", number, err) }
