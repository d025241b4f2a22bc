package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// existing describes a directory before an engine is opened in it. File names, Pebble's markers and SYNCED decide
// whether it may be opened, before the first write. A rejected directory is unchanged.
//
//	nothing, or CREATING without tables        a new engine
//	a complete set of files                    the engine
//	any other files of a database              damaged: never opened as new, and no file is removed
//	another program's files, or a backup       rejected
type existing struct {
	fs    vfs.FS
	dir   string
	names []string
	// isStore is set if there are files that only a database has.
	isStore bool
	// isUnfinished is set if the creation of an engine was interrupted before rows were written.
	isUnfinished bool
	ledger       *ledger // of a store
}

// creatingName is a file that exists from before the first file of a new engine until the engine is complete, which is
// before rows are written.
const creatingName = "CREATING"

// lockName is the file that a process locks while it uses a directory.
const lockName = "LOCK"

// snapshotsFolder is the folder for checkpoints in an engine's directory.
const snapshotsFolder = "snapshots"

// readExisting reads the state of a directory, and returns an error if it must not be opened.
func readExisting(files vfs.FS, dir string, opts *Options) (*existing, error) {
	x, err := examineNames(files, dir, opts)
	if err != nil || x.isNew() {
		return x, err
	}
	if problems := x.ledger.verify(); len(problems) > 0 {
		return nil, problems[0]
	}
	return x, x.checkLogs()
}

// examineNames is like readExisting, but reads only file names and SYNCED, because another process may be writing the
// other files.
func examineNames(files vfs.FS, dir string, opts *Options) (*existing, error) {
	x, err := listUsable(files, dir, opts.ReadOnly)
	switch {
	case err != nil:
		return nil, err
	case x.isNew():
		return x, x.checkSnapshots()
	}
	return x, x.checkStore(opts)
}

// listUsable lists a directory, which may not exist. An error means that the directory must not be used, because a
// restore to it isn't finished. Unless it is opened for reading only, it also must not be a backup or another program's
// directory.
func listUsable(files vfs.FS, dir string, readOnly bool) (*existing, error) {
	x := &existing{fs: files, dir: dir}
	err := x.listFiles()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return x, nil
	case err != nil:
		return nil, err
	case x.has(restoring):
		return nil, fmt.Errorf("%w: %s", errUnfinishedRestore, dir)
	case readOnly:
		return x, nil
	}
	return x, errors.Join(x.checkBackup(), x.checkForeign())
}

// isNew reports whether there is no engine and one may be created.
func (x *existing) isNew() bool { return x.isUnfinished || !x.isStore }

// listFiles reads the names of the directory's files.
func (x *existing) listFiles() error {
	names, err := x.fs.List(x.dir)
	if err != nil {
		return fmt.Errorf("pebble: open %s: %w", x.dir, err)
	}
	slices.Sort(names)
	x.names = names
	x.isStore = slices.ContainsFunc(names, isEngineFile)
	x.isUnfinished = x.has(creatingName) && !slices.ContainsFunc(names, func(name string) bool {
		return isEngineFile(name) && (isTable(name) || strings.HasPrefix(name, ledgerName))
	})
	return nil
}

func (x *existing) has(name string) bool { return slices.Contains(x.names, name) }

// checkSnapshots returns an error for a directory with snapshots but without a store: the store's files are lost.
func (x *existing) checkSnapshots() error {
	if !x.has(snapshotsFolder) {
		return nil
	}
	made, err := x.fs.List(x.fs.PathJoin(x.dir, snapshotsFolder))
	// Ignore the claim files of snapshots, which a command may have left.
	made = slices.DeleteFunc(made, func(name string) bool { return strings.HasSuffix(name, ".claim") })
	if err != nil || len(made) == 0 {
		return err
	}
	return damagedFile(x.dir, "MANIFEST-*", fmt.Sprintf(
		"all files of the store are missing, but it has snapshots, such as %s/%s", snapshotsFolder, made[0],
	))
}

// checkStore returns an error unless a store's files are complete. These are a SYNCED in a format that this release
// reads, Pebble's markers, and a manifest that matches SYNCED. If the marker of the manifest were missing, Pebble would
// create a new database. If the directory had another database's files, Pebble would remove them as obsolete.
func (x *existing) checkStore(opts *Options) error {
	l, problems := readNote(x.fs, x.dir)
	if l == nil { // A SYNCED proves that the directory doesn't belong to another program.
		if err := x.checkOptions(); err != nil {
			return err
		}
	}
	desc, err := pebbledb.Peek(x.dir, readOnlyFS{x.fs})
	if err != nil {
		return x.markerError(err)
	}
	if l == nil {
		return problems[0]
	}
	if err := l.checkFormat(opts); err != nil {
		return err
	}
	missing := func(marker, what string) error {
		return damagedFile(x.dir, marker, what+": which files belong to the store can't be determined")
	}
	switch {
	case !desc.Exists:
		return missing("marker.manifest.*", "missing")
	case desc.FormatMajorVersion == pebbledb.FormatDefault:
		return missing("marker.format-version.*", "missing")
	case uint64(desc.FormatMajorVersion) < l.header.Pebble:
		return missing("marker.format-version.*",
			fmt.Sprintf("names version %d, but the files have version %d", desc.FormatMajorVersion, l.header.Pebble))
	}
	manifest := x.fs.PathBase(desc.ManifestFilename)
	if l.files[manifest] == nil { // This is also an error if the marker names an earlier manifest.
		return missing("marker.manifest.*", fmt.Sprintf("names %s, but according to %s the manifest is %s", manifest,
			ledgerName, l.header.Manifest))
	}
	l.header.Manifest = manifest // A killed process may not have recorded it, and may have removed the previous ones.
	l.dropOldManifests()
	if l.isWithdrawn.Load() {
		l.minLog = x.minLog(manifest)
	}
	x.ledger = l
	return nil
}

// minLog returns the number of the first log with rows that aren't in tables, or 0 if it is unknown.
func (x *existing) minLog(manifest string) uint64 {
	f, err := x.fs.Open(x.fs.PathJoin(x.dir, manifest))
	if err != nil {
		return 0 // Pebble will return the error.
	}
	defer f.Close()
	state, err := readManifestState(f)
	if err != nil {
		return 0
	}
	return state.minLog
}

// checkRepair returns an error for a directory that can't be repaired, before anything is changed: it has no store, it
// is a backup, it belongs to another program or version, or a restore to it isn't finished.
func checkRepair(files vfs.FS, dir string) error {
	x, err := listUsable(files, dir, false)
	if err != nil {
		return err
	}
	if !x.isStore {
		return fmt.Errorf("%w: %s", ErrNoData, x.dir)
	}
	if l, _ := readNote(x.fs, x.dir); l == nil {
		err = x.checkOptions()
	} else {
		err = l.checkFormat(&Options{})
	}
	if err != nil {
		return err
	}
	if _, err := pebbledb.Peek(x.dir, readOnlyFS{x.fs}); err != nil {
		if err = x.markerError(err); errors.Is(err, errBadFormat) {
			return err
		}
	}
	return nil
}

// markerError explains why Pebble can't read its markers.
func (x *existing) markerError(err error) error {
	switch {
	case isSystemError(err):
		return fmt.Errorf("pebble: open %s: %w", x.dir, err)
	case strings.Contains(err.Error(), "format major version"):
		return fmt.Errorf("%w: %w; use the release of Cassia that wrote it", errBadFormat, err)
	}
	return damagedFile(x.dir, "marker.*", err.Error())
}

// isSystemError reports whether an error comes from the operating system rather than from the content of files.
func isSystemError(err error) bool {
	var (
		path *fs.PathError
		link *os.LinkError
		no   syscall.Errno
	)
	return !errors.Is(err, fs.ErrNotExist) && (errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &no))
}

// repairHint returns the end of an error message about damaged or missing files of a directory.
func repairHint(dir string) string {
	return fmt.Sprintf(
		"repair it with cassia restore --damaged --storage.path=%s, or restore a backup (cassia restore)", dir,
	)
}

func damagedFile(dir, name, what string) error {
	return fmt.Errorf("pebble: %w: file %s of %s: %s; %s", engine.ErrCorrupt, name, dir, what, repairHint(dir))
}
