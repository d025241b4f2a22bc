package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// errForeign means that a directory has data of another program.
var errForeign = errors.New("pebble: the directory contains other data")

// errIsBackup means that a directory has backups or is a snapshot, which a start would change.
var errIsBackup = errors.New("pebble: the directory contains a backup")

// CheckForeign returns an errForeign or errIsBackup if Open would reject dir, a directory of this machine, because of
// its content.
func CheckForeign(dir string) error {
	dir, err := absoluteDir(dir)
	if err != nil {
		return err
	}
	x := existing{fs: vfs.Default, dir: dir}
	if err := x.listFiles(); err != nil {
		return err
	}
	return errors.Join(x.checkBackup(), x.checkForeign())
}

// CheckStore returns an error unless dir, a directory of this machine, has an engine with a complete set of files:
// ErrNoData without an engine, errForeign, errIsBackup or engine.ErrCorrupt. It changes nothing and takes no lock, so
// another process may be using the directory.
func CheckStore(dir string) error {
	dir, err := absoluteDir(dir)
	if err != nil {
		return err
	}
	opts := DefaultOptions()
	for tries := 1; ; tries++ {
		x, err := examineNames(vfs.Default, dir, &opts)
		switch {
		case err == nil && x.isNew():
			return fmt.Errorf("%w: %s", ErrNoData, dir)
		case tries == 3 || !errors.Is(err, engine.ErrCorrupt):
			return err
		}
		time.Sleep(50 * time.Millisecond) // Another process may be replacing the missing file.
	}
}

// neighbors maps the names of files and folders at the top of other programs' data directories to the programs. Neither
// engines nor file managers create files with these names.
var neighbors = map[string]string{
	"wal": "Prometheus", "wbl": "Prometheus", "chunks_head": "Prometheus", "queries.active": "Prometheus",
	"indexdb": "VictoriaMetrics", "flock.lock": "VictoriaMetrics", "metadataDir": "VictoriaMetrics",
	"commitlog": "Cassandra", "saved_caches": "Cassandra", "cassandra.yaml": "Cassandra",
}

// checkForeign returns an error for a directory with another program's data. Without a store, every file that engines
// don't create counts: if the path is wrong, a new store there would seem to have lost all data. With a store, only
// data of known programs counts.
func (x *existing) checkForeign() error {
	for _, name := range x.names {
		switch program := neighbors[name]; {
		case program != "" && x.isStore:
			return fmt.Errorf(
				"%w: %s has both a store and %s, which belongs to %s; move one of them to its own directory",
				errForeign, x.dir, name, program,
			)
		case !x.isStore && !mayBeOurs(name):
			return fmt.Errorf(
				"%w: %s contains no store, but %s; choose the directory of a store, or an empty one for a new store",
				errForeign, x.dir, name,
			)
		}
	}
	return nil
}

// checkOptions returns an error if OPTIONS files belong to another program that uses Pebble or RocksDB. It ignores
// damaged files.
func (x *existing) checkOptions() error {
	for _, name := range x.names {
		if !strings.HasPrefix(name, "OPTIONS-") {
			continue
		}
		text, err := readWhole(x.fs, x.fs.PathJoin(x.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // Another process writes there, on a file system without locks.
		}
		if err != nil {
			return fmt.Errorf("pebble: open %s: %w", x.dir, err)
		}
		found := mergerLine.FindSubmatch(text)
		if found != nil && string(found[1]) != newMerger().Name || found == nil &&
			strings.Contains(string(text), "rocksdb_version") && !strings.Contains(string(text), "pebble_version") {
			return fmt.Errorf(
				"%w: the database in %s belongs to another program; choose the directory of a store, or an empty one "+
					"for a new store",
				errForeign, x.dir,
			)
		}
	}
	return nil
}

// mergerLine matches the line with the merge operator's name in an options file.
var mergerLine = regexp.MustCompile(`(?m)^\s*merger=(.*)\n`)

// checkBackup returns an error for a backup, an incomplete backup, a snapshot, and a folder of backups without a store.
func (x *existing) checkBackup() error {
	isBackup := func(folder, name string) error {
		return fmt.Errorf(
			"%w: %s is a backup (created by cassia backup); restore it: cassia restore --from=%s --backup=%s "+
				"--storage.path=NEW-DIRECTORY",
			errIsBackup, filepath.Join(folder, name), folder, name,
		)
	}
	folder, base := filepath.Dir(x.dir), filepath.Base(x.dir)
	if x.has(backupList) {
		return isBackup(folder, base)
	}
	if before, ok := strings.CutSuffix(base, partialSuffix); ok && partialBackup.MatchString(before) {
		return fmt.Errorf("%w: %s is an unfinished backup, which the next cassia backup to %s removes",
			errIsBackup, x.dir, folder)
	}
	if x.isStore {
		return x.checkSnapshot()
	}
	for _, name := range x.names {
		if _, err := x.fs.Stat(x.fs.PathJoin(x.dir, name, backupList)); err == nil {
			return fmt.Errorf(
				"%w: %s is a backup folder (created by cassia backup); restore a backup: cassia restore --from=%s "+
					"--storage.path=NEW-DIRECTORY",
				errIsBackup, x.dir, x.dir,
			)
		}
	}
	return nil
}

// checkSnapshot returns an error for a snapshot that is still in the directory of its store, because a start would
// change it.
func (x *existing) checkSnapshot() error {
	folder := filepath.Dir(x.dir)
	of := existing{fs: x.fs, dir: filepath.Dir(folder)}
	if filepath.Base(folder) != snapshotsFolder || of.listFiles() != nil || !of.isStore {
		return nil
	}
	return fmt.Errorf("%w: %s is a snapshot of the store in %s; copy it to another directory, and use the copy",
		errIsBackup, x.dir, of.dir)
}

// mayBeOurs reports whether a file may have been left by an interrupted creation of an engine, or created by a new file
// system or a file manager.
func mayBeOurs(name string) bool {
	for _, prefix := range []string{".", lockName, creatingName, ledgerName, "temporary.",
		snapshotsFolder, "lost+found"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return isEngineFile(name) || strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".dbtmp")
}

// engineFile matches files that only a database has.
var engineFile = regexp.MustCompile(`^(MANIFEST-\d+|OPTIONS-\d+|\d+\.(sst|blob)|\d+(-\d+)?\.log|marker\..*|` +
	ledgerName + `(` + regexp.QuoteMeta(withdrawnSuffix) + `)?)$`)

func isEngineFile(name string) bool { return engineFile.MatchString(name) }

// isTable reports whether a file has rows that are no longer in a log.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}
