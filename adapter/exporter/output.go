package exporter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// partialFolder is where the files of a folder are until all are whole.
const partialFolder = ".cassia-export-partial"

// Folder is a folder that is filled at once: files appear in it when all of them are complete.
type Folder struct{ path, partial string }

// NewFolder makes a folder, or takes an empty one; what an export that was killed left in it is removed.
func NewFolder(path string) (*Folder, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	f := &Folder{path: path, partial: filepath.Join(path, partialFolder)}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	for _, e := range entries {
		if e.Name() != partialFolder {
			return nil, fmt.Errorf("exporter: %s isn't empty (%s); export to a new folder", path, e.Name())
		}
	}
	if err := os.RemoveAll(f.partial); err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	return f, os.Mkdir(f.partial, 0o777)
}

// finish makes everything appear, or removes it if there was an error, which it returns.
func (f *Folder) finish(err error) error {
	if err != nil {
		return errors.Join(err, os.RemoveAll(f.partial))
	}
	entries, err := os.ReadDir(f.partial)
	if err != nil {
		return fmt.Errorf("exporter: %w", err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(f.partial, e.Name()), filepath.Join(f.path, e.Name())); err != nil {
			return fmt.Errorf("exporter: %w", err)
		}
	}
	return errors.Join(os.Remove(f.partial), syncFolder(f.path))
}

// lines is a file of lines being written. The first error stays.
type lines struct {
	w    *bufio.Writer
	f    *os.File // nil: w isn't a file of ours
	size int64
	err  error
	// path is where the file goes when it is whole, f's name where it is until then.
	path string
}

// linesBuffer is how much is written at once, bytes.
const linesBuffer = 256 << 10

// createLines begins a file that appears under path once it is whole.
func createLines(path string) (*lines, error) {
	if _, err := os.Stat(path); err == nil {
		return nil, fmt.Errorf("exporter: %s already exists; remove it, or choose another name", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-*")
	if err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	if err := f.Chmod(0o644); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return &lines{w: bufio.NewWriterSize(f, linesBuffer), f: f, path: path}, nil
}

// linesTo writes to what the caller opened.
func linesTo(w io.Writer) *lines { return &lines{w: bufio.NewWriterSize(w, linesBuffer)} }

func (l *lines) write(b []byte) {
	if l.err == nil {
		_, l.err = l.w.Write(b)
		l.size += int64(len(b))
	}
}

func (l *lines) writeString(parts ...string) {
	for _, s := range parts {
		if l.err == nil {
			_, l.err = l.w.WriteString(s)
			l.size += int64(len(s))
		}
	}
}

// finish makes the file durable and gives it its name; with an error, or if it isn't wanted, it is removed.
func (l *lines) finish(err error, wanted bool) error {
	if err == nil {
		err = l.err
	}
	if err == nil {
		err = l.w.Flush()
	}
	if l.f == nil {
		return wrapped(err)
	}
	if err == nil && wanted {
		err = l.f.Sync()
	}
	err = errors.Join(err, l.f.Close())
	if err != nil || !wanted {
		return wrapped(errors.Join(err, os.Remove(l.f.Name())))
	}
	return wrapped(fileutil.Rename(l.f.Name(), l.path))
}

func wrapped(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "exporter: ") {
		return err
	}
	return fmt.Errorf("exporter: %w", err)
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return wrapped(err)
	}
	return wrapped(errors.Join(d.Sync(), d.Close()))
}
