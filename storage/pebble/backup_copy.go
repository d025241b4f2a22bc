package pebble

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// copier copies the files of a directory.
type copier struct {
	ctx      context.Context
	files    vfs.FS // the file system for all changes in to
	lineage  Lineage
	from, to string
	before   string // the previous backup; "": none
	number   int64  // of the new backup
	stats    *BackupStats

	contents   contents
	noLinks    bool // the file system has no hard links
	unreadable bool // reading a file failed, rather than writing its copy
}

// run copies all files and writes their list.
func (c *copier) run(now time.Time) error {
	known := c.filesBefore()
	if err := mkdir(c.files, c.to); err != nil {
		return fmt.Errorf("pebble: backup: %w", err)
	}
	entries, err := os.ReadDir(c.from)
	if err != nil {
		return fmt.Errorf("pebble: checkpoint: %w", err)
	}
	if err := c.addExpected(entries, known); err != nil {
		return err
	}
	list := backedUp{
		Version: backupVersion, Taken: now.UTC(), Number: c.number, Store: c.lineage.Store, Copy: c.lineage.Copy,
		Host: c.lineage.Host, Tenants: c.lineage.TenantList(),
	}
	for _, e := range entries {
		if e.Name() == StoreFile {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("pebble: checkpoint: %w", err)
		}
		f, ok := c.shareUnchanged(known[e.Name()], info)
		if !ok {
			if f, ok, err = c.shareContent(info); err != nil {
				return err
			}
		}
		if ok {
			c.stats.Files++
			c.stats.Bytes += f.Size
		} else if f, err = c.copyFile(e.Name()); err != nil {
			return err
		}
		list.Files = append(list.Files, f)
	}
	if err := c.verifyCopies(&list); err != nil {
		return err
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("pebble: list of a backup: %w", err)
	}
	if err := writeSynced(c.files, filepath.Join(c.to, backupList), strings.NewReader(string(text)+"\n")); err != nil {
		return err
	}
	return syncDir(c.files, c.to)
}

// addExpected adds the bytes to be read to the context's meter. Each file is read once, to copy it or to compare it
// with the copy in an earlier backup. A copied sorted file is read again to verify it.
func (c *copier) addExpected(entries []fs.DirEntry, known map[string]backedUpFile) error {
	var work int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("pebble: checkpoint: %w", err)
		}
		if e.Name() == StoreFile {
			continue
		}
		work += info.Size()
		if f := known[e.Name()]; strings.HasSuffix(e.Name(), ".sst") &&
			!(f.Verified && f.Size == info.Size() && f.Changed == info.ModTime().UnixNano()) {
			work += info.Size() / verifyShare
		}
	}
	engine.MeterOf(c.ctx).AddExpected(work)
	return nil
}

// verifyShare is the number of bytes that can be verified, from the page cache, in the time in which one byte is
// copied.
const verifyShare = 4

// copyFile copies a file. The copy is durable when copyFile returns.
func (c *copier) copyFile(name string) (f backedUpFile, err error) {
	in, err := os.Open(filepath.Join(c.from, name))
	if err != nil {
		c.unreadable = true
		return f, fmt.Errorf("pebble: copying: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		c.unreadable = true
		return f, fmt.Errorf("pebble: copying: %w", err)
	}
	if !info.Mode().IsRegular() {
		return f, fmt.Errorf("%w: %s is not a file", ErrBackup, in.Name())
	}
	sum, n, read := sha256.New(), counted{}, &ReaderWithError{R: in}
	summed := io.TeeReader(Cancelable(c.ctx, read), io.MultiWriter(sum, &n))
	if err := writeSynced(c.files, filepath.Join(c.to, name), summed); err != nil {
		c.unreadable = read.Err != nil
		return f, err
	}
	c.stats.Files++
	c.stats.Copied++
	c.stats.Bytes += n.bytes
	c.stats.CopiedBytes += n.bytes
	return backedUpFile{
		Name: name, Size: n.bytes, Changed: info.ModTime().UnixNano(), SHA256: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

type counted struct{ bytes int64 }

func (c *counted) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// Cancelable returns a reader that fails with the context's error after the context has ended. An engine.WorkMeter of
// the context counts the bytes read.
func Cancelable(ctx context.Context, r io.Reader) io.Reader { return cancelable{ctx, r} }

type cancelable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	engine.MeterOf(c.ctx).Add(int64(n))
	return n, err
}

// writeSynced writes a new file. It is durable when writeSynced returns without an error.
func writeSynced(files vfs.FS, path string, from io.Reader) error {
	out, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("pebble: copying: %w", err)
	}
	_, err = io.Copy(struct{ io.Writer }{out}, from)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("pebble: copying %s: %w", filepath.Base(path), err)
	}
	return nil
}

// mkdir creates a directory that must not exist yet.
func mkdir(files vfs.FS, dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s already exists", dir)
	}
	return files.MkdirAll(dir, 0o755)
}

// rename renames a file or directory durably.
func rename(files vfs.FS, from, to string) error {
	if err := files.Rename(from, to); err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	return syncDir(files, filepath.Dir(to))
}

func syncDir(files vfs.FS, dir string) error {
	d, err := files.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("pebble: syncing %s: %w", dir, err)
	}
	return nil
}
