package main

import (
	"io"
	"os"
	"strings"
	"time"
)

// lineOnTerminal replaces the last line of a terminal with each call of Write. Each call must pass exactly one line.
type lineOnTerminal struct{ w io.Writer }

func (l lineOnTerminal) Write(line []byte) (int, error) {
	_, err := io.WriteString(l.w, "\r\x1b[K"+strings.TrimSuffix(string(line), "\n"))
	return len(line), err
}

// clearLine clears the last line of the terminal.
func (l lineOnTerminal) clearLine() { _, _ = io.WriteString(l.w, "\r\x1b[K") }

// progressOn returns the writer for progress lines and the interval between them. On a terminal, each line replaces the
// previous one. In other files, each line is appended, and every is 0, which selects the default interval of package
// bench. end clears the line on a terminal.
func progressOn(f *os.File) (w io.Writer, every time.Duration, end func()) {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return f, 0, func() {}
	}
	line := lineOnTerminal{f}
	return line, barEvery, line.clearLine
}
