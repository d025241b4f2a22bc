package main

import (
	"io"
	"os"
	"strings"
	"time"
)

// lineOnTerminal shows the lines that are written to it, one per call, as one line that changes.
type lineOnTerminal struct{ w io.Writer }

// Write implements io.Writer.
func (l lineOnTerminal) Write(line []byte) (int, error) {
	_, err := io.WriteString(l.w, "\r\x1b[K"+strings.TrimSuffix(string(line), "\n"))
	return len(line), err
}

// end makes room for what follows.
func (l lineOnTerminal) end() { _, _ = io.WriteString(l.w, "\r\x1b[K") }

// progressOn returns where lines of progress go and how often: a terminal has one that changes, all else lines now and then.
func progressOn(f *os.File) (w io.Writer, every time.Duration, end func()) {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return f, 0, func() {}
	}
	line := lineOnTerminal{f}
	return line, barEvery, line.end
}
