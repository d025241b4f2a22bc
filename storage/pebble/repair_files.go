package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	manifestPrefix = "MANIFEST-"
	optionsPrefix  = "OPTIONS-"
	// markerOfManifest and markerOfFormat are the names of Pebble's markers: empty files whose names end with the
	// values.
	markerOfManifest = "manifest"
	markerOfFormat   = "format-version"
)

// numberOf returns the number in the name of a log, manifest or OPTIONS file.
func numberOf(name string) uint64 {
	name = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, manifestPrefix), optionsPrefix), ".log")
	n, _ := strconv.ParseUint(name, 10, 64)
	return n
}

// wholeAs returns the repair of a damaged file of the ledger: another file that has the synced bytes replaces it.
func (m *repairer) wholeAs(name string, w *written, problem error) *toRepair {
	words, _, _ := strings.Cut(problem.Error(), lostWrites) // The rest is the remedy, which is being applied.
	return &toRepair{
		file: name, words: []string{words},
		may: func(_ *Spare, f SpareFile) (bool, error) { return f.Size >= w.synced, nil },
		fits: func(copied string) (bool, error) {
			n, sum, err := sumOf(vfs.Default, copied, w.synced)
			return n == w.synced && sum == w.syncSum, err
		},
	}
}

// findManifest determines the current manifest, repairs it and its marker, and reads it. It returns false if that is
// impossible. Then nothing else can be repaired, because the files of the database are unknown.
//
// The current manifest is the newest one named in SYNCED or by the marker, because either can be older than the
// directory.
func (m *repairer) findManifest() (bool, error) {
	marked, err := atomicfs.ReadMarker(vfs.Default, m.dir, markerOfManifest)
	if err != nil {
		return false, fmt.Errorf("pebble: repair: %w", err)
	}
	m.manifest = marked
	var noted *written
	if m.ledger != nil {
		for name := range m.ledger.files {
			if strings.HasPrefix(name, manifestPrefix) && (m.manifest == "" || numberOf(name) > numberOf(m.manifest)) {
				m.manifest = name
			}
		}
		noted = m.ledger.files[m.manifest]
	}
	if m.manifest == "" {
		// The newest manifest may not be the current one. An older one may miss deletes even if all of its tables
		// exist.
		m.recordLeft("neither %s nor a file marker.%s.* names the current manifest", ledgerName, markerOfManifest)
		m.stats.IsLost = true
		return false, nil
	}
	if noted != nil {
		if err := m.ledger.compareFile(m.manifest, *noted); err != nil {
			d := m.wholeAs(m.manifest, noted, err)
			if err := m.replaceAll([]*toRepair{d}); err != nil {
				return false, err
			}
			if !d.mended {
				m.recordLeft("%s", d.words[0])
				return false, nil
			}
			m.renew = true
		}
	}
	f, err := os.Open(filepath.Join(m.dir, m.manifest))
	if err == nil {
		m.state, err = readManifestState(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		m.recordLeft("file %s is unreadable (%v)", m.manifest, err)
		return false, nil
	}
	if m.ledger != nil {
		m.ledger.minLog = m.state.minLog
	}
	if ok, err := m.isCurrent(noted != nil); err != nil || !ok {
		return false, err
	}
	return true, m.setMarker(markerOfManifest, marked, m.manifest)
}

// isCurrent reports whether the manifest can be used as the current one: SYNCED has recorded it (vouchedFor), or it
// ends with a complete edit and lists exactly the tables in the directory. With giveUp it is used in any case. Tables
// that it doesn't list are then moved aside, because the next start would delete them.
func (m *repairer) isCurrent(vouchedFor bool) (bool, error) {
	if vouchedFor {
		return true, nil
	}
	if m.problem == "" {
		m.problem = fmt.Sprintf("file %s is older than the directory: it doesn't list %s", ledgerName, m.manifest)
	}
	live, err := m.liveFiles()
	if err != nil {
		return false, err
	}
	unnamed, err := m.unnamedTables(live)
	if err != nil {
		return false, err
	}
	doubt := ""
	switch other := m.otherTable(live); {
	case !m.state.isWhole:
		doubt = m.manifest + " ends within a record"
	case len(unnamed) > 0:
		doubt = fmt.Sprintf("%s doesn't list %s", m.manifest, unnamed[0])
	case other != "":
		doubt = fmt.Sprintf("%s isn't the file that %s lists", other, m.manifest)
	}
	if doubt != "" && !m.giveUp {
		m.recordLeft(
			"%s, and %s; --give-up-log continues without knowing whether the manifest is complete", m.problem, doubt,
		)
		return false, nil
	}
	for _, name := range unnamed {
		if err := m.setAside(name); err != nil {
			return false, err
		}
		m.stats.Lost = append(m.stats.Lost, fmt.Sprintf("table %s, which %s doesn't list", name, m.manifest))
	}
	return true, nil
}

// unnamedTables returns the names of the tables in the directory that aren't in live.
func (m *repairer) unnamedTables(live map[uint64]*liveFile) (names []string, err error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("pebble: repair: %w", err)
	}
	for _, e := range entries {
		number, _ := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".sst"), 10, 64)
		if isTableFile(e.Name()) && live[number] == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// otherTable returns the name of a live table that is missing or has a wrong size, or "".
func (m *repairer) otherTable(live map[uint64]*liveFile) string {
	for number, f := range live {
		name := fmt.Sprintf("%06d.sst", number)
		info, err := os.Stat(filepath.Join(m.dir, name))
		if err != nil || f.size != 0 && info.Size() != int64(f.size) {
			return name
		}
	}
	return ""
}

// setMarker sets the value of a marker, unless it already has it.
func (m *repairer) setMarker(name, old, value string) error {
	if old == value {
		return nil
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "marker."+name+".") {
			if err := m.setAside(e.Name()); err != nil {
				return err
			}
		}
	}
	marker, _, err := atomicfs.LocateMarker(vfs.Default, m.dir, name)
	if err != nil {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	if err := errors.Join(marker.Move(value), marker.Close()); err != nil {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	was := "was missing"
	if old != "" {
		was = "named " + old
	}
	m.recordRepaired("file marker.%s.* %s and now names %s", name, was, value)
	return nil
}

var formatOption = regexp.MustCompile(`(?m)^\s*format_major_version=(\d+)$`)

// formatMarker rewrites the marker of Pebble's format if it is missing or older than the format in OPTIONS. Every start
// that writes OPTIONS upgrades the database to that format.
func (m *repairer) formatMarker() error {
	marked, err := atomicfs.ReadMarker(vfs.Default, m.dir, markerOfFormat)
	if err != nil {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	newest := ""
	paths, err := filepath.Glob(filepath.Join(m.dir, optionsPrefix+"*"))
	for _, path := range paths {
		if name := filepath.Base(path); newest == "" || numberOf(name) > numberOf(newest) {
			newest = name
		}
	}
	var text []byte
	if err == nil && newest != "" {
		text, err = os.ReadFile(filepath.Join(m.dir, newest))
	}
	if err != nil {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	found := formatOption.FindSubmatch(text)
	if found == nil {
		if marked == "" {
			m.recordLeft("the format of %[2]s is unknown: file marker.%[1]s.* is missing, and OPTIONS doesn't name it",
				markerOfFormat, m.dir)
			m.stats.IsLost = true
		}
		return nil
	}
	was, _ := strconv.ParseUint(marked, 10, 64)
	format, _ := strconv.ParseUint(string(found[1]), 10, 64)
	if marked != "" && was >= format {
		return nil
	}
	return m.setMarker(markerOfFormat, marked, fmt.Sprintf("%03d", format))
}

// logsAndOptions repairs the logs and OPTIONS. It returns false if a file can't be repaired, so that SYNCED must not be
// written again.
func (m *repairer) logsAndOptions() (ok bool, err error) {
	damaged, err := m.damagedOfLedger()
	if err != nil {
		return false, err
	}
	if err := m.replaceAll(damaged); err != nil {
		return false, err
	}
	ok = true
	for _, d := range damaged {
		m.renew = true
		switch {
		case d.mended:
		case !m.giveUp:
			m.recordLeft("%s; --give-up-log continues without the lost data", d.words[0])
			ok = false
		default:
			if err := m.truncateLog(d.file); err != nil {
				return false, err
			}
		}
	}
	readable, err := m.repairUnreadableLogs(damaged)
	if err != nil {
		return false, err
	}
	if err := m.tablesOfCutLogs(); err != nil {
		return false, err
	}
	if ok = ok && readable; !ok || m.problem == "" {
		return ok, nil
	}
	doubt, err := m.doubtfulLog()
	if err != nil {
		return false, err
	}
	if doubt != "" && !m.giveUp {
		m.recordLeft(
			"%s, and %s; --give-up-log continues without knowing whether the log is complete", m.problem, doubt,
		)
		return false, nil
	}
	if doubt == "" {
		m.recordRepaired("rewrote file %s: the manifest, its tables and the logs are complete", ledgerName)
	} else {
		m.stats.Lost = append(m.stats.Lost, "possibly some data in the log: "+doubt)
	}
	m.renew = true
	return ok, m.copyAside(ledgerName)
}

// damagedOfLedger returns the logs that differ from their entries in SYNCED and have rows that aren't in tables.
// Damaged OPTIONS are moved away. Logs and manifests that are no longer used are ignored.
func (m *repairer) damagedOfLedger() (damaged []*toRepair, err error) {
	if m.ledger == nil {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(m.ledger.files)) {
		w := m.ledger.files[name]
		problem := m.ledger.compareFile(name, *w)
		if strings.HasPrefix(name, optionsPrefix) && problem == nil {
			problem = m.isLonger(name, w) // OPTIONS never grow.
		}
		if problem == nil {
			continue
		}
		switch {
		case isLog(name) && numberOf(name) >= m.state.minLog:
			damaged = append(damaged, m.wholeAs(name, w, problem))
		case strings.HasPrefix(name, manifestPrefix) && name == m.manifest: // It was compared before.
		default:
			m.renew = true
			if err := m.setAside(name); err != nil {
				return nil, err
			}
			m.recordRepaired("file %s was damaged or missing, but isn't needed", name)
		}
	}
	return damaged, nil
}

// isLonger returns an error if a file is longer than its entry in SYNCED.
func (m *repairer) isLonger(name string, w *written) error {
	info, err := os.Stat(filepath.Join(m.dir, name))
	if err == nil && info.Size() > w.synced {
		err = fmt.Errorf("%w: %s has %d bytes, not %d", engine.ErrCorrupt, name, info.Size(), w.synced)
	}
	return err
}

// doubtfulLog describes a log that may have lost records at its end, or returns "" if there is none.
func (m *repairer) doubtfulLog() (string, error) {
	logs, err := m.readLogs()
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		if !logs[name].isClosed {
			return fmt.Sprintf("%s doesn't end like a closed log", name), nil
		}
	}
	if len(logs) == 0 {
		return "there is no log", nil
	}
	return "", nil
}

// tablesOfCutLogs moves tables aside that aren't in the manifest or the logs, if a log was truncated: lost records may
// have added these tables, and the next start would delete them.
func (m *repairer) tablesOfCutLogs() error {
	if !m.isCut {
		return nil
	}
	live, err := m.liveFiles()
	if err != nil {
		return err
	}
	unnamed, err := m.unnamedTables(live)
	for _, name := range unnamed {
		err = errors.Join(err, m.setAside(name))
	}
	return err
}

// truncateLog truncates a log to the part before the damage, which Pebble can read.
func (m *repairer) truncateLog(name string) error {
	m.isCut = true
	path := filepath.Join(m.dir, name)
	l, err := readLog(path)
	if errors.Is(err, fs.ErrNotExist) {
		m.stats.Lost = append(m.stats.Lost, fmt.Sprintf("log %s, which is missing", name))
		return m.setAsideIfThere(name) // It may be a link to a missing file.
	}
	if err != nil {
		return err
	}
	d := &toRepair{file: name, fits: func(string) (bool, error) { return true, nil }}
	if _, err := m.replaceWith(d, func(to string) error { return copyBeginning(path, to, l.whole) }); err != nil {
		return err
	}
	m.stats.Lost = append(m.stats.Lost, fmt.Sprintf("the data of log %s after its first %d of %d bytes",
		name, l.whole, l.size))
	return nil
}
