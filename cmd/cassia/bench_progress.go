package main

import (
	"io"
	"os"
	"strings"
	"time"
)

// lineOnTerminal replaces the last line of a terminal at each write. Each call of Write must have one line.
type lineOnTerminal struct{ w io.Writer }

func (l lineOnTerminal) Write(line []byte) (int, error) {
	_, err := io.WriteString(l.w, "\r\x1b[K"+strings.TrimSuffix(string(line), "\n"))
	return len(line), err
}

// end clears the line.
func (l lineOnTerminal) end() { _, _ = io.WriteString(l.w, "\r\x1b[K") }

// progressOn returns the writer for lines of progress and the interval between them. A terminal has one line that is
// replaced; other files get a new line at a longer interval.
func progressOn(f *os.File) (w io.Writer, every time.Duration, end func()) {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return f, 0, func() {}
	}
	line := lineOnTerminal{f}
	return line, barEvery, line.end
}
