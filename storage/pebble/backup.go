package pebble

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// The backups of a folder are adjacent directories, each a complete copy of an engine's directory:
//
//	folder ─┬─ 20261122T103000Z-1f…/         complete: its list is written last, and then it is renamed
//	        │    ├─ backup.json              the list: each file's size, time and SHA-256
//	        │    └─ 000123.sst, MANIFEST-… , …
//	        ├─ 20261123T103000Z-07…/         shares the files that didn't change, by hard links
//	        └─ 20261124T103000Z-c2….part/    not complete, or being removed
const (
	backupList    = "backup.json"
	partialSuffix = ".part"
	backupVersion = 1
)

var (
	// ErrBackup means that the content of a backup has changed since it was written.
	ErrBackup = errors.New("pebble: damaged backup")
	// ErrNoBackup means that there is no complete backup.
	ErrNoBackup = errors.New("pebble: no complete backup")
	// errBackupBusy means that another backup to the folder is in progress.
	errBackupBusy = errors.New("pebble: another backup to this destination is in progress")
)

// backedUp is the content of a backup's list.
type backedUp struct {
	Version int       `json:"version"`
	Taken   time.Time `json:"taken"`
	// Number is higher than the numbers of the store's earlier backups in the folder, even if a clock was wrong.
	Number int64 `json:"number"`
	// Store identifies the backup's store; "" for a directory without a store.
	Store string `json:"store,omitempty"`
	// Copy is Lineage.Copy.
	Copy string `json:"copy,omitempty"`
	// Host is the name of the machine. Tenants are the tenants of the store.
	Host    string         `json:"host,omitempty"`
	Tenants []string       `json:"tenants,omitempty"`
	Files   []backedUpFile `json:"files"`
	// Damaged are the files that were already damaged in the source.
	Damaged []string `json:"damaged,omitempty"`
}

// backedUpFile is a file of a backup. Changed is its modification time in the engine's directory, in nanoseconds since
// 1970.
type backedUpFile struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"`
	SHA256  string `json:"sha256"`
	// Verified is set if every block matched its checksum when the file was copied.
	Verified bool `json:"verified,omitempty"`
}

// BackupStats are the results of a backup or a restore: the number of files and their bytes, and the number of files
// that were copied because they didn't exist in the destination.
type BackupStats struct {
	Files, Copied      int
	Bytes, CopiedBytes int64
	Removed            int // older backups
	Name               string
	Taken              time.Time
	LeftOver           []string // names of unfinished backups, which were removed
	Verified           int      // files whose blocks were all compared with their checksums
	Damaged            []string // files that were already damaged in the source; then no older backup was removed
	Future             string   // a backup that is dated in the future; then no older backup was removed either
	Unreadable         []string // lists of other backups, or of garbage, that can't be read, each with the remedy
	Rotten             []string // files of the previous backup whose content has changed since it was made
}

// Backup copies a checkpoint, which no process changes, into folder under a name. Files whose content is already in a
// backup in the folder become hard links, if the file system has hard links, and aren't copied again. When Backup
// returns without an error, the backup is complete, verified, and durable. An interrupted Backup leaves no backup.
// Afterwards, the store's backups that keep doesn't select are removed.
//
// A RetentionError means that the backup was made, but removing older backups failed.
func Backup(
	ctx context.Context, checkpoint, folder, name string, keep Keep, now time.Time,
) (stats BackupStats, err error) {
	return backup(ctx, vfs.Default, checkpoint, folder, name, keep, now)
}

// backup is Backup, with all changes of the folder made through files.
func backup(
	ctx context.Context, files vfs.FS, checkpoint, folder, name string, keep Keep, now time.Time,
) (stats BackupStats, err error) {
	if err := CheckBackupFolder(folder); err != nil {
		return stats, err
	}
	if err := files.MkdirAll(folder, 0o755); err != nil {
		return stats, fmt.Errorf("pebble: backup folder: %w", err)
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return stats, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	all, partial, err := backups(folder)
	if err != nil {
		return stats, err
	}
	lineage, err := LineageOf(checkpoint)
	if err != nil {
		return stats, err
	}
	store := lineage.Store
	before, unreadable := readableOfStore(folder, all, store)
	for _, left := range partial {
		if err := removeTree(files, filepath.Join(folder, left+partialSuffix)); err != nil {
			return stats, fmt.Errorf("pebble: removing an unfinished or deleted backup: %w", err)
		}
	}
	stats.LeftOver, stats.Unreadable, stats.Name, stats.Taken = partial, unreadable, name, now
	c := copier{
		ctx: ctx, files: files, lineage: lineage, from: checkpoint, to: filepath.Join(folder, name+partialSuffix),
		stats: &stats,
	}
	if before = sortBackups(folder, before); len(before) > 0 {
		c.before = filepath.Join(folder, before[len(before)-1])
	}
	c.number = nextNumber(folder, before)
	if err := c.run(now); err != nil {
		return stats, errors.Join(err, removeTree(files, c.to))
	}
	if err := rename(files, c.to, filepath.Join(folder, name)); err != nil {
		return stats, errors.Join(err, removeTree(files, c.to))
	}
	if len(stats.Damaged) > 0 {
		return stats, nil
	}
	if err := removeSurplus(files, folder, name, store, keep, now, &stats); err != nil {
		return stats, &RetentionError{Err: err}
	}
	return stats, nil
}

// removeSurplus removes the store's backups that keep doesn't select, except the one that was just made.
func removeSurplus(files vfs.FS, folder, made, store string, keep Keep, now time.Time, stats *BackupStats) error {
	// The backups are ordered by time. With a wrong clock the new one may not be the last.
	all, _, err := backups(folder)
	if err != nil {
		return err
	}
	own, _ := readableOfStore(folder, all, store)
	surplus, future := surplusBackups(folder, own, keep, now)
	stats.Future = future
	for _, old := range surplus {
		if old == made {
			continue
		}
		if err := removeBackup(files, folder, old); err != nil {
			return err
		}
		stats.Removed++
	}
	return nil
}

// StoreFile is the file in which NameLineage writes the lineage of a checkpoint. It isn't part of a backup.
const StoreFile = "STORE"

// oneStore returns an error if the backups are of multiple stores.
func oneStore(folder string, names []string) error {
	newest := map[string]string{}
	for _, name := range names {
		if list, err := readList(filepath.Join(folder, name)); err == nil {
			newest[list.Store] = name
		}
	}
	if len(newest) < 2 {
		return nil
	}
	return &MultipleStoresError{At: folder, Newest: slices.Sorted(maps.Values(newest))}
}

// partialBackup matches the names of backups that commands and schedules make.
var partialBackup = regexp.MustCompile(`^\d{8}T\d{6}Z-[0-9a-z]+$`)

// backups returns the names of the complete backups in a folder, the oldest first, and the names of the incomplete
// backups. A backup whose list is missing or unreadable counts as complete: a backup gets its final name only when it
// is complete.
func backups(folder string) (complete, partial []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("pebble: backup folder: %w", err)
	}
	taken := map[string]time.Time{}
	for _, e := range entries {
		name := e.Name()
		if before, ok := strings.CutSuffix(name, partialSuffix); ok {
			if e.IsDir() && partialBackup.MatchString(before) {
				partial = append(partial, before)
			}
		} else if hasList(folder, e) {
			complete = append(complete, name)
			taken[name] = backupTime(folder, name)
		}
	}
	slices.SortFunc(complete, func(a, b string) int {
		return cmp.Or(taken[a].Compare(taken[b]), strings.Compare(a, b))
	})
	return complete, partial, nil
}

// hasList reports whether a directory counts as a complete backup: it has a list, its name is that of a backup, or it
// can't be accessed.
func hasList(folder string, e fs.DirEntry) bool {
	_, err := os.Stat(filepath.Join(folder, e.Name(), backupList))
	switch {
	case err == nil:
		return true
	case errors.Is(err, fs.ErrNotExist):
		return e.IsDir() && partialBackup.MatchString(e.Name())
	}
	return !errors.Is(err, syscall.ENOTDIR) // For example, the directory may be readable only by another user.
}

// sortBackups returns the names of backups of one store in the order in which the backups were made. names are in the
// order of their times. If the list of a backup can't be read, the result is names.
func sortBackups(folder string, names []string) []string {
	number := map[string]int64{}
	for _, name := range names {
		list, err := readList(filepath.Join(folder, name))
		if err != nil {
			return names
		}
		number[name] = list.Number
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(number[a], number[b]) })
	return names
}

// nextNumber returns the number of a new backup, which is higher than the numbers of the backups in before.
func nextNumber(folder string, before []string) (next int64) {
	for _, name := range before {
		if list, err := readList(filepath.Join(folder, name)); err == nil {
			next = max(next, list.Number)
		}
	}
	return next + 1
}

// backupTime returns the time of a backup, from its list or else from its name.
func backupTime(folder, name string) time.Time {
	if list, err := readList(filepath.Join(folder, name)); err == nil {
		return list.Taken
	}
	const layout = "20060102T150405Z"
	at, _ := time.Parse(layout, name[:min(len(name), len(layout))])
	return at
}

// Restore restores a backup to dir, which must be empty or not exist. The empty name selects the newest backup without
// known damage; if the folder has backups of multiple stores, the name is required. The files are compared with the
// backup's list. An interrupted restore leaves a directory that can't be opened as an engine, and to which a backup can
// be restored again.
func Restore(ctx context.Context, folder, name, dir string) (BackupStats, error) {
	return RestoreAndChange(ctx, folder, name, dir, nil)
}

// RestoreAndChange is like Restore, and also calls change before the directory can be opened: see Restored.Finish.
// change gets the name of the backup.
func RestoreAndChange(
	ctx context.Context, folder, name, dir string, change func(dir, backup string) error,
) (BackupStats, error) {
	return restore(ctx, vfs.Default, folder, name, dir, change)
}

// restore is RestoreAndChange, with all changes of the directory made through files.
func restore(
	ctx context.Context, files vfs.FS, folder, name, dir string, change func(dir, backup string) error,
) (stats BackupStats, err error) {
	if name == "" {
		names, _, err := backups(folder)
		if err != nil {
			return stats, err
		}
		if _, err := os.Stat(filepath.Join(folder, backupList)); err == nil {
			return stats, fmt.Errorf(
				"%w in %s, which is itself a backup; restore it from its parent folder, with --backup=%s", ErrNoBackup,
				folder, filepath.Base(folder),
			)
		}
		if len(names) == 0 {
			return stats, fmt.Errorf("%w in %s", ErrNoBackup, folder)
		}
		if err := oneStore(folder, names); err != nil {
			return stats, err
		}
		names = sortBackups(folder, names)
		if name = newestWhole(folder, names); name == "" {
			return stats, fmt.Errorf("%w in %s that is undamaged; --backup=%s is the newest damaged one",
				ErrNoBackup, folder, names[len(names)-1])
		}
	}
	from := filepath.Join(folder, name)
	list, err := readList(from)
	if _, statErr := os.Stat(from); errors.Is(statErr, fs.ErrNotExist) {
		return stats, fmt.Errorf("%w at %s", ErrNoBackup, from)
	}
	if err != nil {
		return stats, orOlderThanUnreadable(err, folder, name)
	}
	var names []string
	work := int64(0)
	for _, f := range list.Files {
		names = append(names, f.Name)
		work += f.Size
	}
	defer func() { err = NoRoom(err, dir, work) }()
	to, err := beginRestore(files, dir, names)
	if err != nil {
		return stats, err
	}
	engine.MeterOf(ctx).AddExpected(work)
	stats = BackupStats{Name: name, Taken: list.Taken}
	c := copier{ctx: ctx, files: files, from: from, to: to.folder(), stats: &stats}
	for _, f := range list.Files {
		got, err := c.copyFile(f.Name)
		if err == nil && (got.Size != f.Size || got.SHA256 != f.SHA256) {
			err = fmt.Errorf("%w: %s differs from the file that was backed up", ErrBackup, filepath.Join(from, f.Name))
		}
		if err == nil {
			continue
		}
		if _, statErr := os.Stat(from); errors.Is(statErr, fs.ErrNotExist) {
			err = fmt.Errorf("%w at %s: it was removed by a concurrent backup (--keep)", ErrNoBackup, from)
		}
		// Recommend an older backup only if this one is damaged. Other errors would also prevent restoring the older
		// one.
		if c.unreadable || errors.Is(err, ErrBackup) || errors.Is(err, ErrNoBackup) {
			err = orOlder(err, folder, &list, name)
		}
		return stats, errors.Join(err, to.Undo())
	}
	return stats, to.Finish(BindChange(name, change))
}

// BindChange returns a function for Restored.Finish that calls change with the name of the backup, or nil if change is
// nil.
func BindChange(backup string, change func(dir, backup string) error) func(dir string) error {
	if change == nil {
		return nil
	}
	return func(dir string) error { return change(dir, backup) }
}

// orOlder adds the name of the store's previous backup to the error for a backup that can't be restored.
func orOlder(err error, folder string, list *backedUp, name string) error {
	names, _, listErr := backups(folder)
	if listErr != nil {
		return err
	}
	own, _ := readableOfStore(folder, names, list.Store)
	own = sortBackups(folder, own)
	for _, older := range slices.Backward(own[:max(0, slices.Index(own, name))]) {
		if isUndamaged(folder, older) {
			return fmt.Errorf("%w; the previous backup is --backup=%s", err, older)
		}
	}
	return fmt.Errorf("%w; there is no older backup", err)
}

func readList(dir string) (list backedUp, err error) {
	text, err := os.ReadFile(filepath.Join(dir, backupList))
	if err != nil {
		return list, fmt.Errorf("pebble: list of a backup: %w", err)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return list, fmt.Errorf("%w: %s: %w", ErrBackup, filepath.Join(dir, backupList), err)
	}
	if list.Version != backupVersion {
		return list, &BackupVersionError{Backup: dir, Version: list.Version, Supported: backupVersion}
	}
	for _, f := range list.Files {
		if f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." {
			return list, fmt.Errorf("%w: %s lists %q, which is not a backup file", ErrBackup, dir, f.Name)
		}
	}
	return list, nil
}
