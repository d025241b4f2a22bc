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

// partialFolder is the subfolder that holds a folder's files until all are complete.
const partialFolder = ".cassia-export-partial"

// Folder is a folder whose files appear only when all of them are complete.
type Folder struct{ path, partial string }

// NewFolder creates a folder or opens an empty one. Files left by an export that was killed are deleted.
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

// finish moves the files into the folder. If err isn't nil, it deletes them and returns err.
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

// lines is a text file that is being written. The first error is kept.
type lines struct {
	w    *bufio.Writer
	f    *os.File // nil: w was opened by the caller
	size int64
	err  error
	// path is the name of the complete file. Until the file is complete, it has the name of f.
	path string
}

// linesBuffer is the size of the write buffer in bytes.
const linesBuffer = 256 << 10

// createLines creates a file that appears under path when it is complete.
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

// linesTo returns a lines that writes to w.
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

// finish syncs and renames the file. After an error, or if wanted is false, it deletes the file instead.
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
