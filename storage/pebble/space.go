package pebble

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// Parts of the disk usage that aren't tables, as in the result of Engine.Space.
const (
	// SpaceLog is data that isn't in sorted files yet.
	SpaceLog = "log"
	// SpaceFree is the part of sorted files without live rows: obsolete files that scans under way may still use, and
	// truncated ranges of other files. It is freed when the scans end or the files are compacted.
	SpaceFree = "free"
	// SpaceOther is everything else: the manifest, the options, the ledger, subdirectories, and the directory itself.
	SpaceOther = "other"
)

// Space returns the disk usage of the engine's directory in bytes, as du counts it, by kind: the rows of a table (its
// name) in sorted files, including overwritten rows that aren't compacted yet, SpaceLog, SpaceFree and SpaceOther. The
// sum is the size that du shows. The division of sorted files between tables and SpaceFree is an estimate.
func (e *Engine) Space(ctx context.Context) (map[string]uint64, error) {
	tables := map[string]uint64{}
	for _, t := range engine.Tables {
		n, err := e.Usage(ctx, t, nil)
		if err != nil {
			return nil, err
		}
		tables[t.Name] = n
	}
	files, err := measureDir(e.fs, e.dir)
	if err != nil {
		return nil, err
	}
	return shareDiskUsage(tables, files), nil
}

// shareDiskUsage adds the disk usage of files other than tables. If the tables add up to more bytes than the sorted
// files have, because files were deleted since or the estimate was too high, the tables are scaled down.
func shareDiskUsage(tables map[string]uint64, files fileBytes) map[string]uint64 {
	rows := uint64(0)
	for _, n := range tables {
		rows += n
	}
	if of := rows; of > files.sorted {
		rows = 0
		for name, n := range tables {
			tables[name] = uint64(float64(n) / float64(of) * float64(files.sorted))
			rows += tables[name]
		}
	}
	tables[SpaceLog], tables[SpaceOther] = files.log, files.other
	tables[SpaceFree] = files.sorted - min(rows, files.sorted)
	return tables
}

// Bytes returns the disk usage of a directory, as du counts it.
func Bytes(dir string) (uint64, error) {
	files, err := measureDir(vfs.Default, dir)
	return files.sorted + files.log + files.other, err
}

// fileBytes is the disk usage of files by kind.
type fileBytes struct{ sorted, log, other uint64 }

// measureDir returns the disk usage of the files in a directory. Files that are removed concurrently don't count.
func measureDir(files vfs.FS, dir string) (sum fileBytes, err error) {
	info, err := files.Stat(dir)
	if err != nil {
		return sum, err
	}
	names, err := files.List(dir)
	if err != nil {
		return sum, err
	}
	sum.other = allocatedBytes(info)
	for _, name := range names {
		path := files.PathJoin(dir, name)
		info, err := files.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return sum, err
		case info.IsDir():
			below, err := measureDir(files, path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return sum, err
			}
			sum.other += below.sorted + below.log + below.other
		case isLog(name):
			sum.log += allocatedBytes(info)
		case strings.HasSuffix(name, ".sst"):
			sum.sorted += allocatedBytes(info)
		default:
			sum.other += allocatedBytes(info)
		}
	}
	return sum, nil
}

// allocatedBytes returns the disk usage of a file: less than its size if it has holes, more if space was allocated
// ahead.
func allocatedBytes(info os.FileInfo) uint64 {
	if n, ok := blocksOf(info); ok {
		return n
	}
	if info.IsDir() {
		return 0
	}
	return uint64(info.Size())
}
