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

// stdout is the standard output of commands. It keeps the first error of a write, because most code that prints ignores
// errors. The command then fails with that error.
var stdout = &standardOutput{}

// standardOutput writes to os.Stdout.
type standardOutput struct {
	mu  sync.Mutex
	err error
}

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

// withError adds the first failed write since the last call to the error of a command, unless the error already
// contains its text. Some commands keep only the texts of causes, so errors.Is isn't enough.
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

// forUsage returns the writer for help, after which terminate is called. Its writes return no errors, because kingpin
// panics if printing help fails; standardOutput keeps the errors. On a terminal it is the file itself, because kingpin
// reads the width from it.
func (o *standardOutput) forUsage() io.Writer {
	info, err := os.Stdout.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		// Terminals can't seek. Other devices such as /dev/full can.
		if _, err := os.Stdout.Seek(0, io.SeekCurrent); err != nil {
			return os.Stdout
		}
	}
	return lenientOutput{o}
}

type lenientOutput struct{ to *standardOutput }

func (l lenientOutput) Write(p []byte) (int, error) {
	_, _ = l.to.Write(p) // standardOutput keeps the error.
	return len(p), nil
}
