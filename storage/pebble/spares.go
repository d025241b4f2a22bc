package pebble

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
)

// Spare is a backup whose files can replace damaged ones.
type Spare struct {
	Name string
	// Files are the backup's files, by their names in the engine's directory.
	Files map[string]SpareFile
}

// SpareFile is a file of a backup.
type SpareFile struct {
	// ID identifies a copy of the file. Backups that share a copy have the same ID for it.
	ID   string
	Size int64
	// Copy passes the content to write. If the content is missing or has changed since the backup, it returns an
	// ErrBackup, and the bytes written so far must be discarded.
	Copy func(ctx context.Context, write func(io.Reader) error) error
}

// Spares returns the backups in a folder whose lists can be read, the newest first.
func Spares(folder string) iter.Seq2[Spare, error] {
	return func(yield func(Spare, error) bool) {
		names, _, err := backups(folder)
		if err != nil {
			yield(Spare{}, err)
			return
		}
		for _, name := range slices.Backward(names) {
			list, err := readList(filepath.Join(folder, name))
			if err != nil {
				continue // Its files may be intact, but their expected content is unknown.
			}
			s := Spare{Name: name, Files: make(map[string]SpareFile, len(list.Files))}
			for _, f := range list.Files {
				path := filepath.Join(folder, name, f.Name)
				s.Files[f.Name] = SpareFile{ID: path, Size: f.Size,
					Copy: func(ctx context.Context, write func(io.Reader) error) error {
						return f.copyTo(ctx, path, write)
					}}
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// copyTo passes the content of a file of a folder's backup to write, and compares it with the list.
func (f backedUpFile) copyTo(ctx context.Context, path string, write func(io.Reader) error) error {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBackup, err)
	}
	defer in.Close()
	sum, n, read := sha256.New(), counted{}, &ReaderWithError{R: in}
	err = write(io.TeeReader(Cancelable(ctx, read), io.MultiWriter(sum, &n)))
	if read.Err != nil {
		return fmt.Errorf("%w: %w", ErrBackup, read.Err)
	}
	if err == nil && (n.bytes != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.SHA256) {
		err = fmt.Errorf("%w: %s differs from the file that was backed up", ErrBackup, path)
	}
	return err
}

// ReaderWithError keeps the last error of R, so that a caller of io.Copy can distinguish it from an error of writing.
type ReaderWithError struct {
	R   io.Reader
	Err error
}

func (r *ReaderWithError) Read(p []byte) (n int, err error) {
	if n, err = r.R.Read(p); err != nil && err != io.EOF {
		r.Err = err
	}
	return n, err
}
