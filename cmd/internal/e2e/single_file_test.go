package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/soak"
)

// ending is the expected outcome for a directory with one damaged file.
type ending int

const (
	works ending = iota + 1 // works with all samples, and check reports nothing
	alone                   // may fail to start; restore --damaged repairs it without a backup
	// fails to start; restore --damaged --from repairs it; without a backup, missing rows are reported
	fromBackup
	named     // fails to start; works after restore --damaged, and missing rows are reported
	giveUpLog // fails to start; restore --damaged --give-up-log continues without the log
	asAWhole  // fails to start; only restoring a whole backup helps

	refused // the backup isn't restored, and the error names the file
	either  // the backup is restored completely, or rejected
)

// damages contains the ways in which a file is damaged.
var damages = []string{"deleted", "emptied", "cut by half", "an older copy"}

const snapshotKind = "file of a snapshot"

// endings contains the expected outcomes for every kind of file, in the order of damages.
var endings = map[string][4]ending{
	"LOCK":                         {works, works, works, works},
	"OPTIONS":                      {alone, alone, alone, alone},
	"SYNCED":                       {alone, alone, alone, works},
	"marker.format-version":        {alone, works, works, works},
	"marker.manifest":              {alone, works, works, alone},
	"manifest":                     {asAWhole, asAWhole, asAWhole, asAWhole},
	"manifest before the last":     {works, works, works, works},
	"log":                          {giveUpLog, giveUpLog, giveUpLog, giveUpLog},
	"table that a backup has":      {fromBackup, fromBackup, fromBackup, works},
	"table newer than the backups": {named, named, named, works},
	"snapshots.backups":            {works, works, works, works},
	"snapshots.lock":               {works, works, works, works},
	snapshotKind:                   {works, works, works, works},
}

// kind returns the kind of the file at path, which is its key in the endings map.
func (d *damageable) kind(t *testing.T, path string) string {
	name := filepath.Base(path)
	prefix, _, _ := strings.Cut(name, "-")
	switch {
	case strings.HasPrefix(path, "snapshots/"):
		return snapshotKind
	case filepath.Ext(name) == ".sst":
		if found, err := filepath.Glob(filepath.Join(d.backups, "*", name)); err == nil && len(found) > 0 {
			return "table that a backup has"
		}
		return "table newer than the backups"
	case prefix == "MANIFEST":
		markers, err := filepath.Glob(filepath.Join(d.dir, "marker.manifest.*."+name))
		require.NoError(t, err)
		if len(markers) > 0 {
			return "manifest"
		}
		return "manifest before the last"
	case filepath.Ext(name) == ".log":
		return "log"
	case strings.HasPrefix(name, "marker."):
		return strings.Join(strings.Split(name, ".")[:2], ".")
	}
	return prefix
}

// damageFile damages one file in a copy of the directory. For "an older copy", it replaces the file with an older
// version of itself or, if there is none, with an older file of the same kind, such as the previous manifest.
func (d *damageable) damageFile(t *testing.T, dir, path, damage string) {
	file := filepath.Join(dir, path)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	switch damage {
	case "deleted":
		require.NoError(t, os.Remove(file))
	case "emptied":
		require.NoError(t, os.Truncate(file, 0))
	case "cut by half":
		require.NoError(t, os.Truncate(file, int64(len(b)/2)))
	case "an older copy":
		name := filepath.Base(path)
		for _, older := range []string{d.older, d.before} {
			if old, err := os.ReadFile(filepath.Join(older, name)); err == nil &&
				(string(old) != string(b) || filepath.Ext(name) == ".sst") {
				require.NoError(t, os.WriteFile(file, old, 0o600))
				return
			}
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(name, "marker."), ".")
		prefix, _, _ := strings.Cut(name, "-")
		for _, old := range files(t, d.before) {
			if base := filepath.Base(old); base == old &&
				(strings.HasPrefix(base, prefix+"-") || strings.HasPrefix(base, "marker."+kind+".")) {
				text, err := os.ReadFile(filepath.Join(d.before, old))
				require.NoError(t, err)
				require.NoError(t, os.Remove(file))
				require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Dir(path), old), text, 0o600))
				return
			}
		}
	}
}

// backupEndings contains the expected outcomes for every kind of file in a folder of backups, in the order of damages.
var backupEndings = map[string][4]ending{
	"OPTIONS":               {refused, refused, refused, either},
	"SYNCED":                {refused, refused, refused, either},
	"backup.json":           {refused, refused, refused, either},
	"lock":                  {works, works, works, works},
	"log":                   {refused, refused, refused, either},
	"manifest":              {refused, refused, refused, either},
	"marker.format-version": {refused, works, works, either},
	"marker.manifest":       {refused, works, works, either},
	"table":                 {refused, refused, refused, either},
}

// damageCell is one case: a file and the way in which it is damaged.
type damageCell struct {
	path, damage string
	inBackup     bool
	want         ending
}

// cells returns the cases for all files of the directory and of the folder of backups. The test fails if a kind of file
// has no cases, or if there is no file for a case.
func (d *damageable) cells(t *testing.T) (all []damageCell) {
	add := func(path, kind string, inBackup bool, rows map[string][4]ending, found map[string]bool) {
		row, ok := rows[kind]
		require.True(t, ok, "%s is of kind %q, for which there are no cells", path, kind)
		found[kind] = true
		for i, damage := range damages {
			require.NotZero(t, row[i], "%s, %s", kind, damage)
			all = append(all, damageCell{path, damage, inBackup, row[i]})
		}
	}
	found, inBackup := map[string]bool{}, map[string]bool{}
	for _, path := range files(t, d.dir) {
		if kind := d.kind(t, path); kind != snapshotKind || !found[kind] {
			add(path, kind, false, endings, found)
		}
	}
	for _, path := range files(t, d.backups) {
		kind := d.kind(t, path)
		kind = strings.TrimSuffix(strings.TrimSuffix(kind, " that a backup has"), " before the last")
		add(path, kind, true, backupEndings, inBackup)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(endings)), slices.Collect(maps.Keys(found)))
	require.ElementsMatch(t, slices.Collect(maps.Keys(backupEndings)), slices.Collect(maps.Keys(inBackup)))
	return all
}

// TestSingleFileDamage damages one file of a directory at a time: it deletes it, empties it, truncates it to half, or
// replaces it with an older copy. Either the directory works with all acknowledged samples, or the start fails in one
// line with a remedy. The remedy must work, or missing rows must be reported. The directory must never be opened as a
// new store, and never lose files. A backup with a damaged file must either be restored with all of its samples, or be
// rejected with the name of the file. Each run tests random cases, and a soak test tests all.
func TestSingleFileDamage(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	cells := d.cells(t)
	rng := rand.New(rand.NewPCG(soak.Seed(t), 0))
	rng.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	if soak.Times(t, 1) == 1 {
		cells = cells[:soak.Fewer(8)]
	}
	for _, c := range cells {
		t.Run(fmt.Sprintf("%s/%s", c.path, c.damage), func(t *testing.T) {
			if c.inBackup {
				d.requireRestoredOrRefused(t, c)
				return
			}
			s := d.damagedCopy(t, c.path, c.damage)
			s.requireEnding(t, c.want)
		})
	}
}

// requireRestoredOrRefused restores a backup with a damaged file and requires the expected outcome.
func (d *damageable) requireRestoredOrRefused(t *testing.T, c damageCell) {
	folder, base := filepath.Join(t.TempDir(), "backups"), t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(d.backups)))
	d.damageFile(t, folder, c.path, c.damage)
	stdout, stderr, status := cassiatest.Command(
		t, builtCassia(t), "restore", "--from="+folder, "--storage.path="+filepath.Join(base, "data"),
	)
	if c.want == works || c.want == either && status == 0 {
		require.Zero(t, status, stdout+stderr)
		require.Equal(t, d.backedUp, d.ask(t, base).samples)
		return
	}
	require.Equal(t, 1, status)
	require.Contains(t, cassiatest.LastLine(stderr), filepath.Base(folder))
	if filepath.Base(c.path) != "backup.json" { // A backup without this file is incomplete.
		require.Contains(t, cassiatest.LastLine(stderr), filepath.Base(c.path))
	}
	require.NoDirExists(t, filepath.Join(base, "data"))
}

// damagedCopy is a copy of a directory in which one file is damaged.
type damagedCopy struct {
	*damageable
	base, dir string
	file      string
	before    []string
}

func (d *damageable) damagedCopy(t *testing.T, path, damage string) *damagedCopy {
	s := &damagedCopy{damageable: d, base: t.TempDir(), file: filepath.Base(path)}
	s.dir = filepath.Join(s.base, "data")
	require.NoError(t, os.CopyFS(s.dir, os.DirFS(d.dir)))
	d.damageFile(t, s.dir, path, damage)
	s.before = s.rowFiles(t)
	return s
}

// rowFiles returns the names of the tables and logs in the directory, including those that were moved aside.
func (s *damagedCopy) rowFiles(t *testing.T) (names []string) {
	for _, path := range files(t, s.dir) {
		if ext := filepath.Ext(path); ext == ".sst" || ext == ".log" {
			names = append(names, filepath.Base(path))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// requireWorks requires that check finds no problem and that all samples are returned.
func (s *damagedCopy) requireWorks(t *testing.T) {
	_, stderr, status := cassiatest.Command(t, builtCassia(t), "check", "--storage.path="+s.dir)
	require.Zero(t, status, stderr)
	a := s.ask(t, s.base)
	require.Empty(t, a.refused)
	require.Equal(t, s.acked, a.samples)
	require.False(t, a.warned)
}

// requireRefused requires that check, doctor and a start reject the directory in one line with the remedy, and change
// no file.
func (s *damagedCopy) requireRefused(t *testing.T) {
	before := contents(t, s.dir)
	_, stderr, status := cassiatest.Command(t, builtCassia(t), "check", "--storage.path="+s.dir)
	require.Equal(t, 1, status)
	require.Regexp(t, `cassia restore --damaged`, cassiatest.LastLine(stderr))
	text, _, status := cassiatest.Command(t, builtCassia(t), "doctor", "--storage.path="+s.dir)
	require.Equal(t, 1, status)
	require.Contains(t, text, "cassia restore --damaged")
	require.NotContains(t, text, "there is no store")
	a := s.ask(t, s.base)
	require.Regexp(t, `cassia restore --damaged`, a.refused, "%v", a.samples)
	require.Equal(t, before, contents(t, s.dir), "a refusal changes nothing")
}

// restore runs restore --damaged and returns its exit status and output. It requires that no table or log is deleted.
func (s *damagedCopy) restore(t *testing.T, args ...string) (status int, text string) {
	stdout, stderr, status := cassiatest.Command(
		t, builtCassia(t), append([]string{"restore", "--damaged", "--storage.path=" + s.dir}, args...)...,
	)
	require.Subset(t, s.rowFiles(t), s.before, "%s%s", stdout, stderr)
	return status, stdout + stderr
}

// requireNamed requires that the directory works except for missing samples, which responses and check must report.
func (s *damagedCopy) requireNamed(t *testing.T) {
	stdout, stderr, status := cassiatest.Command(t, builtCassia(t), "check", "--storage.path="+s.dir)
	require.Equal(t, 1, status)
	require.Contains(t, stdout+stderr, s.file) // The table may contain the settings, without which no row can be read.
	a := s.ask(t, s.base)
	if a.refused != "" { // Settings or tombstones are missing, so no result would be correct.
		require.Contains(t, a.refused, "cassia")
		return
	}
	require.Empty(t, a.silent)
}

func (s *damagedCopy) requireEnding(t *testing.T, want ending) {
	if want == works {
		s.requireWorks(t)
		return
	}
	s.requireRefused(t)
	status, text := s.restore(t)
	switch want {
	case alone:
		require.Zero(t, status, text)
		s.requireWorks(t)
		return
	case fromBackup, named:
		require.Equal(t, 1, status, text)
		require.Contains(t, text, s.file)
		if want == named {
			s.requireNamed(t)
			return
		}
		status, text = s.restore(t, "--from="+s.backups)
		require.Zero(t, status, text)
		s.requireWorks(t)
	case giveUpLog:
		require.Equal(t, 1, status, text)
		require.Contains(t, text, "--give-up-log")
		status, text = s.restore(t, "--from="+s.backups, "--give-up-log")
		require.Zero(t, status, text)
		require.Contains(t, text, "Deletes made after the damage are lost; repeat them.")
		a := s.ask(t, s.base)
		require.Empty(t, a.refused)
		require.Subset(t, []string{"late_c"}, a.silent, "samples that were only in the log")
	case asAWhole:
		require.Equal(t, 1, status, text)
		require.Contains(t, text,
			"set --from to the folder or bucket of the backups, or restore a whole backup (cassia restore)")
		status, text = s.restore(t, "--from="+s.backups)
		require.Equal(t, 1, status, text)
		s.requireBackup(t)
	}
}

// requireBackup restores the whole backup and requires that it works.
func (s *damagedCopy) requireBackup(t *testing.T) {
	base := t.TempDir()
	stdout, stderr, status := cassiatest.Command(
		t, builtCassia(t), "restore", "--from="+s.backups, "--storage.path="+filepath.Join(base, "data"),
	)
	require.Zero(t, status, stdout+stderr)
	require.Equal(t, s.backedUp, s.ask(t, base).samples)
}
