package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// stdout is where commands print. It keeps the first error of a write, with which the command then fails, because most code that prints ignores errors.
var stdout = &standardOutput{}

// standardOutput writes to os.Stdout.
type standardOutput struct {
	mu  sync.Mutex
	err error
}

// Write implements io.Writer.
func (o *standardOutput) Write(p []byte) (int, error) {
	n, err := os.Stdout.Write(p)
	if err == nil {
		return n, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		o.err = fmt.Errorf("writing to the standard output: %w", err)
	}
	return n, o.err
}

// withError adds the first failed write since the last call to the error of a command, unless that names it: some commands keep only the texts of causes.
func (o *standardOutput) withError(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	written := o.err
	o.err = nil
	if written == nil || err != nil && strings.Contains(err.Error(), written.Error()) {
		return err
	}
	return errors.Join(err, written)
}

// forUsage returns the writer for help, after which terminate is called: one without errors, because kingpin panics if printing help fails. The standard output
// keeps them. On a terminal it is the file, from which kingpin gets the width.
func (o *standardOutput) forUsage() io.Writer {
	info, err := os.Stdout.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		if _, err := os.Stdout.Seek(0, io.SeekCurrent); err != nil { // Terminals can't seek; other devices, such as /dev/full, can.
			return os.Stdout
		}
	}
	return lenientOutput{o}
}

type lenientOutput struct{ to *standardOutput }

// Write implements io.Writer.
func (l lenientOutput) Write(p []byte) (int, error) {
	_, _ = l.to.Write(p) // It keeps the error.
	return len(p), nil
}
