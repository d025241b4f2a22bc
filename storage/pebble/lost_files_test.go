package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// fileDamage is a kind of damage to one file of a store.
type fileDamage string

const (
	fileDeleted fileDamage = "deleted"
	fileEmptied fileDamage = "emptied"
	fileHalved  fileDamage = "cut to its first half"
	fileOlder   fileDamage = "replaced by an older copy"
)

var fileDamages = []fileDamage{fileDeleted, fileEmptied, fileHalved, fileOlder}

// outcome is the expected result of a start with a damaged file.
type outcome string

const (
	works   outcome = "works with nothing missing"
	refused outcome = "is refused with one line that names the file and the remedy, and changes nothing"
)

// fileKind is a kind of file. pattern matches the names of its files; it is nil for manifests that aren't the current
// one.
type fileKind struct {
	name     string
	pattern  *regexp.Regexp
	outcomes map[fileDamage]outcome
}

// fileKinds are the kinds of files in a store's directory, and the outcome of each damage.
var fileKinds = []fileKind{
	{"sorted file", regexp.MustCompile(`^\d+\.sst$`), map[fileDamage]outcome{fileDeleted: refused, fileEmptied: refused, fileHalved: refused, fileOlder: refused}},
	{"log", regexp.MustCompile(`^\d+\.log$`), map[fileDamage]outcome{fileDeleted: refused, fileEmptied: refused, fileHalved: refused, fileOlder: refused}},
	{"manifest", regexp.MustCompile(`^MANIFEST-\d+$`), map[fileDamage]outcome{fileDeleted: refused, fileEmptied: refused, fileHalved: refused, fileOlder: refused}},
	{"manifest before", nil, map[fileDamage]outcome{fileDeleted: works, fileEmptied: works, fileHalved: works, fileOlder: works}},
	{"options", regexp.MustCompile(`^OPTIONS-\d+$`), map[fileDamage]outcome{fileDeleted: refused, fileEmptied: refused, fileHalved: refused, fileOlder: refused}},
	// The markers are empty: their names are their content.
	{"marker of the manifest", regexp.MustCompile(`^marker\.manifest\..*$`), map[fileDamage]outcome{fileDeleted: refused, fileEmptied: works, fileHalved: works, fileOlder: refused}},
	{"marker of the format", regexp.MustCompile(`^marker\.format-version\..*$`), map[fileDamage]outcome{fileDeleted: refused, fileEmptied: works, fileHalved: works, fileOlder: refused}},
	// An older copy has smaller lengths. The current files have at least these lengths, so it is accepted.
	{"SYNCED", regexp.MustCompile(`^SYNCED$`), map[fileDamage]outcome{fileDeleted: refused, fileEmptied: refused, fileHalved: refused, fileOlder: works}},
	{"lock", regexp.MustCompile(`^LOCK$`), map[fileDamage]outcome{fileDeleted: works, fileEmptied: works, fileHalved: works, fileOlder: works}},
	{"file of a snapshot", regexp.MustCompile(`^snapshots/`), map[fileDamage]outcome{fileDeleted: works, fileEmptied: works, fileHalved: works, fileOlder: works}},
}

// storeFiles are the files of a store by their paths in its directory.
type storeFiles map[string]string

func filesOf(t testing.TB, files vfs.FS, dir string) storeFiles {
	t.Helper()
	found := storeFiles{}
	names, err := files.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		path := files.PathJoin(dir, name)
		info, err := files.Stat(path)
		require.NoError(t, err)
		if info.IsDir() {
			for below, text := range filesOf(t, files, path) {
				found[name+"/"+below] = text
			}
			continue
		}
		text, err := readWhole(files, path)
		require.NoError(t, err)
		found[name] = string(text)
	}
	return found
}

func (f storeFiles) disk(t testing.TB) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewMem()
	for path, text := range f {
		path = "data/" + path
		require.NoError(t, disk.MkdirAll(disk.PathDir(path), 0o755))
		file, err := disk.Create(path, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = file.Write([]byte(text))
		require.NoError(t, errors.Join(err, file.Close()))
	}
	return disk
}

// manyKinds makes a store with rows in logs and multiple levels, and a snapshot. If isClosed is set, now has the files
// after the store was closed, otherwise the files while it is open. earlier has the files at earlier moments, the
// latest first. rows is the number of rows in the store.
func manyKinds(t testing.TB, isClosed bool) (now storeFiles, earlier []storeFiles, rows int) {
	t.Helper()
	disk := vfs.NewMem()
	keep := func(e *Engine) {
		require.NoError(t, e.ledger.writeIfChanged())
		earlier = slices.Insert(earlier, 0, filesOf(t, disk, "data"))
	}
	write := func(e *Engine, n int) {
		for range n {
			require.NoError(t, e.Write(ctx, stageBatch(int64(rows), strings.Repeat("v", 1000))))
			rows++
		}
	}
	e := openOn(t, disk, func(o *Options) { o.MemTableBytes = 2 << 20 })
	write(e, 20)
	require.NoError(t, e.Write(ctx, sealedRows(300, 1)))
	require.NoError(t, e.CompactAll(ctx))
	keep(e)
	require.NoError(t, e.Close())

	e = openOn(t, disk)
	write(e, 20)
	keep(e)
	require.NoError(t, e.Write(ctx, sealedRows(200, 2)))
	require.NoError(t, e.db.Flush())
	write(e, 10)
	require.NoError(t, e.Checkpoint("data/snapshots/one"))
	keep(e)
	write(e, 20)
	require.NoError(t, e.Write(ctx, sealedRows(100, 3)))
	require.NoError(t, e.ledger.writeIfChanged())
	levels, err := e.db.SSTables()
	require.NoError(t, err)
	require.Greater(
		t, slices.IndexFunc(levels[1:], func(level []pebbledb.SSTableInfo) bool { return len(level) > 0 }), 0,
	)
	now = filesOf(t, disk, "data")
	require.NoError(t, e.Close())
	if isClosed {
		now = filesOf(t, disk, "data")
	}
	return now, earlier, rows
}

// older returns the files of a store after a file was replaced by an older copy. The copy is an earlier version of the
// file, an earlier file of its kind if files of this kind never change, or an earlier marker.
func older(t testing.TB, now storeFiles, earlier []storeFiles, name string, kind *regexp.Regexp) storeFiles {
	t.Helper()
	changed := maps.Clone(now)
	if strings.HasPrefix(name, "marker.") {
		delete(changed, name)
		for _, at := range slices.Backward(earlier) {
			for other := range at {
				if kind.MatchString(other) && other != name {
					changed[other] = at[other]
					return changed
				}
			}
		}
		// Pebble upgraded the format when the store was created.
		changed["marker.format-version.000001.013"] = ""
		return changed
	}
	for _, at := range earlier {
		if text, ok := at[name]; ok && text != now[name] {
			changed[name] = text
			return changed
		}
	}
	for _, at := range append(earlier, now) {
		for _, other := range slices.Sorted(maps.Keys(at)) {
			if kind.MatchString(other) && at[other] != now[name] {
				changed[name] = at[other]
				return changed
			}
		}
	}
	require.Equal(t, lockName, name, "nothing is older than it")
	return changed
}

// TestEachFileOfAStore damages each file of a store, one at a time: it deletes, empties or shortens the file, or
// replaces it by an older copy. The store was closed or killed before. The directory is never opened as a new store,
// and if it is rejected, nothing changes.
func TestEachFileOfAStore(t *testing.T) {
	t.Parallel()
	for _, isClosed := range []bool{true, false} {
		now, earlier, rows := manyKinds(t, isClosed)
		tried := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(now)) {
			kind := kindOf(t, now, name)
			tried[kind.name] = true
			for _, damage := range fileDamages {
				want, ok := kind.outcomes[damage]
				require.True(t, ok, "fileKinds has no outcome for: %s %s", kind.name, damage)
				changed := maps.Clone(now)
				switch damage {
				case fileDeleted:
					delete(changed, name)
				case fileEmptied:
					changed[name] = ""
				case fileHalved:
					changed[name] = now[name][:len(now[name])/2]
				case fileOlder:
					changed = older(t, now, earlier, name, kind.pattern)
				}
				about := fmt.Sprintf("%s %s (closed: %v)", name, damage, isClosed)
				if want == works {
					requireWorks(t, about, changed, rows)
				} else {
					named := name
					if kind.name != "sorted file" && kind.name != "log" {
						named = strings.SplitN(name, "0", 2)[0] // A number may be that of the expected file.
					}
					requireRefused(t, about, changed, named, rows)
				}
			}
		}
		for _, kind := range fileKinds {
			require.True(t, tried[kind.name], "the store has no %s", kind.name)
		}
	}
}

// kindOf returns the kind of a store's file.
func kindOf(t testing.TB, files storeFiles, name string) fileKind {
	t.Helper()
	isCurrent := slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(marker string) bool {
		return strings.HasPrefix(marker, "marker.manifest.") && strings.HasSuffix(marker, "."+name)
	})
	for _, k := range fileKinds {
		if k.pattern == nil && strings.HasPrefix(name, "MANIFEST-") && !isCurrent {
			k.pattern = regexp.MustCompile(`^MANIFEST-\d+$`)
			return k
		}
		if k.pattern != nil && k.pattern.MatchString(name) && (k.name != "manifest" || isCurrent) {
			return k
		}
	}
	require.Fail(t, "fileKinds has no kind for "+name)
	return fileKind{}
}

func requireWorks(t testing.TB, about string, files storeFiles, rows int) {
	t.Helper()
	for _, readOnly := range []bool{true, false} {
		disk := files.disk(t)
		opts := smallOptions()
		opts.FS, opts.ReadOnly = disk, readOnly
		e, err := Open("data", opts)
		require.NoError(t, err, about)
		require.Equal(t, rows, stageRows(t, e), about)
		require.Equal(t, 300, countRows(t, e, engine.Raw, sealedPartition), about)
		require.NoError(t, e.Close(), about)
	}
}

func requireRefused(t testing.TB, about string, files storeFiles, named string, rows int) {
	t.Helper()
	for _, readOnly := range []bool{true, false} {
		disk := files.disk(t)
		opts := smallOptions()
		opts.FS, opts.ReadOnly = disk, readOnly
		_, err := Open("data", opts)
		require.ErrorIs(t, err, engine.ErrCorrupt, about)
		require.NotErrorIs(t, err, ErrNoData, about)
		require.ErrorContains(t, err, "cassia restore --damaged --storage.path=data", about)
		require.NotContains(t, err.Error(), "\n", about)
		require.Contains(t, err.Error(), named, about)
		require.Equal(t, files, filesOf(t, disk, "data"), about)
	}
}

// TestStoreOfTwoMoments mixes the files of two moments. If the result can be opened, it has all rows of the later
// moment.
func TestStoreOfTwoMoments(t *testing.T) {
	t.Parallel()
	now, earlier, rows := manyKinds(t, true)
	for _, before := range earlier {
		for _, pattern := range []string{
			`^MANIFEST-`, `^marker\.manifest`, `^marker\.`, `^(MANIFEST-|marker\.)`, `\.log$`, `^SYNCED$`,
			`^(SYNCED|MANIFEST-)`, `^(SYNCED|MANIFEST-.*|marker\..*)$`, `^OPTIONS`,
		} {
			mixed, match := maps.Clone(now), regexp.MustCompile(pattern)
			for name := range now {
				if match.MatchString(name) {
					delete(mixed, name)
				}
			}
			for name, text := range before {
				if match.MatchString(name) {
					mixed[name] = text
				}
			}
			disk := mixed.disk(t)
			opts := smallOptions()
			opts.FS = disk
			e, err := Open("data", opts)
			if err != nil {
				require.ErrorIs(t, err, engine.ErrCorrupt, pattern)
				require.Equal(t, mixed, filesOf(t, disk, "data"), pattern)
				continue
			}
			require.Equal(t, rows, stageRows(t, e), pattern)
			require.Equal(t, 300, countRows(t, e, engine.Raw, sealedPartition), pattern)
			require.NoError(t, e.Close())
		}
	}
}

// TestEvidenceOfAStore checks that a directory with any one file that only a store has is never opened as a new store.
func TestEvidenceOfAStore(t *testing.T) {
	t.Parallel()
	now, _, _ := manyKinds(t, true)
	for name, text := range now {
		if name == lockName {
			continue
		}
		requireRefused(t, name, storeFiles{name: text}, "", 0)
		if strings.HasSuffix(name, ".sst") || name == ledgerName {
			requireRefused(t, name+" and "+creatingName, storeFiles{name: text, creatingName: ""}, "", 0)
		}
	}
	disk := vfs.NewMem()
	opts := smallOptions()
	opts.FS, opts.MustExist = disk, true
	_, err := Open("data", opts)
	require.ErrorIs(t, err, ErrNoData)
	_, err = disk.Stat("data")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
