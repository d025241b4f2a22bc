package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// beginCreation prepares a directory for a new engine, and creates the file that marks the engine as incomplete. A
// start that finds this file creates the engine again. Files of an interrupted creation are removed. The caller must
// hold the lock.
func (x *existing) beginCreation() error {
	path := x.fs.PathJoin(x.dir, creatingName)
	if !x.has(creatingName) {
		f, err := x.fs.Create(path, vfs.WriteCategoryUnspecified)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return fmt.Errorf("pebble: create a store in %s: %w", x.dir, err)
		}
	}
	for _, name := range x.names {
		if !isEngineFile(name) && name != ledgerName+".tmp" {
			continue
		}
		if err := x.fs.Remove(x.fs.PathJoin(x.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("pebble: create a store in %s: %w", x.dir, err)
		}
	}
	return syncDirectory(x.fs, x.dir)
}

// openLedger takes over the ledger of an existing engine, or begins the creation of a new one.
func (e *Engine) openLedger(x *existing, files vfs.FS) error {
	if e.ledger = x.ledger; x.isNew() {
		if err := x.beginCreation(); err != nil {
			return err
		}
		e.ledger = newLedger(files, e.dir)
	}
	e.ledger.fs = files
	return nil
}

// completeCreation writes the first SYNCED of a new engine, and then removes the file that marks the engine as
// incomplete. Rows may be written only after that.
func (e *Engine) completeCreation() error {
	if err := e.ledger.releaseNotes(); err != nil {
		return err
	}
	path := e.fs.PathJoin(e.dir, creatingName)
	if _, err := e.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := e.fs.Remove(path); err != nil {
		return fmt.Errorf("pebble: create a store in %s: %w", e.dir, err)
	}
	return syncDirectory(e.fs, e.dir)
}

// makeDirectory creates a directory and its parents durably.
func makeDirectory(files vfs.FS, dir string) error {
	var made []string
	for at := dir; ; at = files.PathDir(at) {
		if _, err := files.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, at)
		if parent := files.PathDir(at); parent == at || strings.TrimSpace(parent) == "" {
			break
		}
	}
	if err := files.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("pebble: create %s: %w", dir, err)
	}
	for _, at := range made {
		if err := syncDirectory(files, files.PathDir(at)); err != nil {
			return err
		}
	}
	return nil
}
