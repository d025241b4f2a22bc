package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// repairSuffix is the suffix of a file that will replace a damaged one.
const repairSuffix = ".mend"

// RepairStats are the results of a repair.
type RepairStats struct {
	// Files and Bytes count the verified table files.
	Files int
	Bytes int64
	// Mended describes the repaired files, Lost the files whose loss was accepted, and Left the files that are still
	// damaged.
	Mended, Lost, Left []string
	// CantOpen is set if the directory can't be opened with the damage that is left. Otherwise it can, and queries report
	// the missing rows.
	CantOpen bool
	// IsLost is set if no file of a backup can repair the directory; only restoring a complete backup can.
	IsLost bool
	// Aside is the folder with the damaged files, "" if there are none.
	Aside string
}

// Repair repairs the damaged files of an engine's directory that no process uses:
//
//	markers          written again: SYNCED has the manifest's name, and OPTIONS the format
//	manifest, logs   replaced by a backup's copy that has all bytes recorded in SYNCED
//	tables           replaced by a backup's file with the same entry in the backup's manifest
//	OPTIONS          moved away: the next start writes it again
//	SYNCED           written again if the manifest, all of its tables and the logs are complete
//
// Rows that are newer than the backup are kept. No file is deleted; replaced files are moved to a folder. If no backup
// has a table, its file is extended to its size, so that the directory can be opened and queries report the missing
// rows. With giveUp, rows and deletes after the damage in a damaged log are lost, so that the directory can be opened.
// A log is damaged if bytes recorded in SYNCED are missing, or if Pebble can't read it.
//
// spares yields the backups, the newest first. They are read only while a file is still damaged.
func Repair(
	ctx context.Context, spares iter.Seq2[Spare, error], dir string, giveUp bool,
) (stats RepairStats, err error) {
	if err := checkRepair(vfs.Default, dir); err != nil {
		return stats, err
	}
	lock, err := lockDirectory(dir, writeLocks{vfs.Default})
	if err != nil {
		return stats, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	m := &repairer{ctx: ctx, dir: dir, spares: spares, giveUp: giveUp, stats: &stats,
		described: map[string]map[uint64]*liveFile{}}
	return stats, m.run()
}

func isTableFile(name string) bool {
	return strings.HasSuffix(name, ".sst") && !strings.HasPrefix(name, ingestPrefix)
}

// repairer repairs one directory.
type repairer struct {
	ctx    context.Context
	dir    string
	spares iter.Seq2[Spare, error]
	giveUp bool
	stats  *RepairStats

	// ledger is the content of SYNCED, or nil if SYNCED is damaged or missing for the reason problem.
	ledger  *ledger
	problem string
	// manifest is the name of the current manifest, and state its content.
	manifest string
	state    *manifestState
	// renew is set if SYNCED must be written again.
	renew bool
	// isCut is set if a log was truncated or is missing.
	isCut bool

	described map[string]map[uint64]*liveFile // live files in the manifests of backups, by the backups' names
}

// toRepair is a damaged file that must be replaced.
type toRepair struct {
	file string
	// words describe the damage.
	words []string
	// may is called before a backup's file is copied. It reports whether the file may be an intact version of the
	// damaged file. fits is called with the path of the copy, which is known to match the backup's list. It reports
	// whether the copy is an intact version of the damaged file.
	may  func(s *Spare, f SpareFile) (bool, error)
	fits func(path string) (bool, error)

	tried  map[string]bool // by SpareFile.ID
	mended bool
}

func (m *repairer) run() error {
	m.ledger, _ = readNote(vfs.Default, m.dir)
	switch _, err := os.Stat(filepath.Join(m.dir, ledgerName)); {
	case m.ledger != nil:
	case errors.Is(err, fs.ErrNotExist):
		m.problem = fmt.Sprintf("file %s is missing", ledgerName)
	default:
		m.problem = fmt.Sprintf("file %s is damaged", ledgerName)
	}
	if ok, err := m.findManifest(); err != nil || !ok {
		return err
	}
	ok, err := m.logsAndOptions()
	if err != nil {
		return err
	}
	if err := m.repairTables(); err != nil {
		return err
	}
	if err := m.formatMarker(); err != nil || !ok || !m.renew {
		return err
	}
	if err := noteCopy(vfs.Default, m.dir); err != nil {
		return err
	}
	return m.setAsideIfThere(ledgerName + withdrawnSuffix)
}

func (m *repairer) recordRepaired(format string, args ...any) {
	m.stats.Mended = append(m.stats.Mended, fmt.Sprintf(format, args...))
}

// recordLeft records damage that prevents the directory from being opened.
func (m *repairer) recordLeft(format string, args ...any) {
	m.stats.Left = append(m.stats.Left, fmt.Sprintf(format, args...))
	m.stats.CantOpen = true
}

// replaceAll replaces damaged files with files of backups, where a backup has them.
func (m *repairer) replaceAll(all []*toRepair) error {
	left := len(all)
	if left == 0 {
		return nil
	}
	for spare, err := range m.spares {
		if err != nil {
			return err
		}
		for _, d := range all {
			f, ok := spare.Files[d.file]
			if !ok || d.mended || d.tried[f.ID] {
				continue
			}
			may, err := d.may(&spare, f)
			if err != nil {
				return err
			}
			if !may {
				continue
			}
			if d.tried == nil {
				d.tried = map[string]bool{}
			}
			d.tried[f.ID] = true
			if d.mended, err = m.replaceFromBackup(d, spare.Name, f); err != nil {
				return err
			}
			if d.mended {
				left--
			}
		}
		if left == 0 {
			break
		}
	}
	return m.ctx.Err()
}

// replaceFromBackup replaces a damaged file by a backup's file, if the backup's file is intact and fits.
func (m *repairer) replaceFromBackup(d *toRepair, backup string, f SpareFile) (ok bool, err error) {
	ok, err = m.replaceWith(d, func(to string) error {
		return f.Copy(m.ctx, func(from io.Reader) error { return writeSynced(vfs.Default, to, from) })
	})
	if ok {
		text := ""
		if strings.HasSuffix(d.file, ".log") {
			// If a process was killed, SYNCED can be up to a second older than the log.
			text = "; if the process was killed, samples of its last second may be missing"
		}
		m.recordRepaired("restored file %s from backup %s%s", d.file, backup, text)
	}
	return ok, err
}

// replaceWith calls write to create a file, and replaces a damaged file with it if it fits.
func (m *repairer) replaceWith(d *toRepair, write func(to string) error) (ok bool, err error) {
	to := filepath.Join(m.dir, d.file)
	written := to + repairSuffix
	remove := func() error {
		if err := os.Remove(written); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("pebble: repair: %w", err)
		}
		return nil
	}
	if err := remove(); err != nil {
		return false, err
	}
	defer func() {
		if !ok {
			err = errors.Join(err, remove())
		}
	}()
	err = write(written)
	if errors.Is(err, ErrBackup) {
		return false, nil // The backup's file is damaged or missing.
	}
	if err != nil {
		return false, err
	}
	if ok, err := d.fits(written); err != nil || !ok {
		return false, err
	}
	if err := m.linkAside(d.file); err != nil {
		return false, err
	}
	if err := fileutil.Rename(written, to); err != nil {
		return false, fmt.Errorf("pebble: repair: %w", err)
	}
	return true, nil
}

// asideFolder is the folder in an engine's directory to which Repair moves the files that it replaces.
const asideFolder = "damaged"

// setAside moves a file, if it exists, to the folder of damaged files.
func (m *repairer) setAside(name string) error {
	to, err := m.freeNameAside(name)
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Join(m.dir, name), to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	return errors.Join(syncDir(vfs.Default, filepath.Dir(to)), syncDir(vfs.Default, m.dir))
}

// setAsideIfThere is setAside, but doesn't create the folder if the file doesn't exist.
func (m *repairer) setAsideIfThere(name string) error {
	if _, err := os.Lstat(filepath.Join(m.dir, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return m.setAside(name)
}

// linkAside links a file, if it exists, into the folder of damaged files. The file itself remains until another one
// replaces it.
func (m *repairer) linkAside(name string) error {
	if _, err := os.Lstat(filepath.Join(m.dir, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to, err := m.freeNameAside(name)
	if err != nil {
		return err
	}
	if err := os.Link(filepath.Join(m.dir, name), to); err != nil { // Some file systems have no links.
		return m.copyAside(name)
	}
	return syncDir(vfs.Default, filepath.Dir(to))
}

// copyAside copies a file, if it exists, to the folder of damaged files.
func (m *repairer) copyAside(name string) error {
	from, err := os.Open(filepath.Join(m.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	defer from.Close()
	to, err := m.freeNameAside(name)
	if err != nil {
		return err
	}
	return errors.Join(writeSynced(vfs.Default, to, from), syncDir(vfs.Default, filepath.Dir(to)))
}

// freeNameAside returns an unused path in the folder of damaged files.
func (m *repairer) freeNameAside(name string) (path string, err error) {
	folder := filepath.Join(m.dir, asideFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("pebble: repair: %w", err)
	}
	m.stats.Aside = folder
	for n := 0; ; n++ {
		path = filepath.Join(folder, name)
		if n > 0 {
			path += fmt.Sprintf(".%d", n)
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", fmt.Errorf("pebble: repair: %w", err)
		}
	}
}
