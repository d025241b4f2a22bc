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

// stdout is the standard output of commands. Most code that prints ignores write errors, so stdout records the first
// one and the command fails with it.
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

// withError adds the recorded write error, if there is one, to the error of a command, and clears it. The text of the
// write error isn't added again if err contains it already. It compares texts because some commands keep only the texts
// of their causes, not the errors.
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

// forUsage returns the writer to which kingpin prints help. The writer never returns an error, because kingpin panics
// if printing help fails. Instead, standardOutput records the error. On a terminal, the writer is os.Stdout itself,
// from which kingpin reads the terminal's width.
func (o *standardOutput) forUsage() io.Writer {
	info, err := os.Stdout.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		// Of the character devices, terminals can't seek, but others such as /dev/full can.
		if _, err := os.Stdout.Seek(0, io.SeekCurrent); err != nil {
			return os.Stdout
		}
	}
	return lenientOutput{o}
}

type lenientOutput struct{ to *standardOutput }

func (l lenientOutput) Write(p []byte) (int, error) {
	_, _ = l.to.Write(p) // standardOutput records the error.
	return len(p), nil
}
