package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/panics"
)

// ledgerName is the file that records the synced length and the checksum of other files. Without it, lost bytes at the
// end of a log or manifest go undetected: Pebble assumes that a power failure interrupted the last write. Pebble
// doesn't verify OPTIONS files at all. The file, called the note, is written once a second if files have grown, before
// one of these files is removed, and when the engine is closed:
//
//	CRC-32C of the JSON, 8 hexadecimal digits, a space
//	{"version":2,"format":"1","pebble":24,"manifest":"MANIFEST-000009","store":{…},"files":[{"name":"000005.log","bytes":161623,"crc32c":"1c291ca3"}, …]}
//
// Open compares the start of each file with the note. Bytes synced after the last note, less than a second before a
// power failure, are verified only by Pebble and findSyncedDamage. A manifest is recorded before Pebble's marker refers
// to it. So a manifest that isn't recorded is never the current one, and tables that the current one doesn't contain
// are obsolete. The note also has the versions of all formats in the directory. A release that doesn't support one of
// them rejects the directory before it changes a file.
const ledgerName = "SYNCED"

// withdrawnSuffix is the suffix of a note that couldn't be replaced before files were removed. It may list files that
// no longer exist.
const withdrawnSuffix = ".withdrawn"

const (
	ledgerVersion = 2
	ledgerEvery   = time.Second
)

// ledger tracks the files of a directory while they are written, and writes the note. The zero ledger tracks none.
type ledger struct {
	fs  vfs.FS
	dir string

	// noting is held while the note is written, and while the entry of a file is removed from the note because the file
	// is removed.
	noting sync.Mutex
	isHeld bool // the engine isn't complete, and no note is written; guarded by noting
	// isWithdrawn is set if there is a withdrawn note.
	isWithdrawn atomic.Bool
	// minLog is the number of the first log that is still needed, or 0 if it is unknown. A log with this or a higher
	// number must exist if the note lists it, even if the note is withdrawn.
	minLog uint64

	mu      sync.Mutex // never held during a disk operation, because writes of the log wait for it
	header  ledgerHeader
	files   map[string]*written
	changed bool // since the last note
	fresh   bool // there are names that the last sync of the directory may not include
	// ownManifest is set if a manifest was created since the engine was opened.
	ownManifest bool
	stop        chan struct{}
	stopped     sync.WaitGroup
}

// written is the state of a file: the numbers of bytes written and synced, and their checksums.
type written struct {
	bytes, synced int64
	sum, syncSum  uint32
	torn          bool // a write failed, so the content after synced is unknown
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// isNoted reports whether the note lists a file. The note lists the files in which Pebble doesn't detect that bytes at
// the end are missing. Pebble creates an options file under a temporary name, .dbtmp.
func isNoted(base string) bool {
	return strings.HasSuffix(base, ".log") ||
		strings.HasSuffix(base, ".dbtmp") && !strings.HasPrefix(base, ingestPrefix) ||
		strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, "OPTIONS-")
}

// name returns a file's name in the directory, and whether the note lists the file.
func (l *ledger) name(path string) (base string, ok bool) {
	if l.files == nil || l.fs.PathDir(path) != l.dir {
		return "", false
	}
	base = l.fs.PathBase(path)
	return base, isNoted(base)
}

// ledgerProblem is the damage of a file.
type ledgerProblem struct {
	file string
	err  error
}

func (p ledgerProblem) Error() string { return p.err.Error() }
func (p ledgerProblem) Unwrap() error { return p.err }

// newLedger returns the ledger of a new engine. It writes no note until releaseNotes is called.
func newLedger(files vfs.FS, dir string) *ledger {
	return &ledger{
		// PathDir returns the directory in this form for the paths of its files.
		fs: files, dir: files.PathDir(files.PathJoin(dir, ledgerName)),
		isHeld: true, header: ledgerHeader{Version: ledgerVersion, Format: formatVersion}, files: map[string]*written{},
		stop: make(chan struct{}),
	}
}

// readLedger returns the ledger of a directory, and the damage of its files. The ledger is nil if the note is missing
// or damaged.
func readLedger(files vfs.FS, dir string) (*ledger, []ledgerProblem) {
	l, problems := readNote(files, dir)
	if l == nil {
		return nil, problems
	}
	return l, l.verify()
}

// verify compares the synced bytes of the files with the ledger. Files may be written and removed concurrently.
func (l *ledger) verify() (problems []ledgerProblem) {
	l.mu.Lock()
	files, now := maps.Clone(l.files), make(map[string]written, len(l.files))
	for name, w := range files {
		now[name] = *w
	}
	l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := l.compareFile(name, now[name])
		if err == nil {
			continue
		}
		l.mu.Lock()
		isSame := l.files[name] == files[name]
		l.mu.Unlock()
		if isSame {
			problems = append(problems, ledgerProblem{name, err})
		}
	}
	return problems
}

// compareFile returns an error if a file differs from its synced bytes.
func (l *ledger) compareFile(name string, w written) error {
	if w.synced == 0 {
		return nil
	}
	n, sum, err := sumOf(l.fs, l.fs.PathJoin(l.dir, name), w.synced)
	what := ""
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.isWithdrawn.Load() &&
		!(isLog(name) && l.minLog > 0 && numberOf(name) >= l.minLog):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		what = "missing"
	case err != nil:
		return fmt.Errorf("pebble: verify %s: %w", name, err)
	case n < w.synced:
		what = fmt.Sprintf("only %d of at least %d bytes", n, w.synced)
	case sum != w.syncSum:
		what = fmt.Sprintf("its first %d bytes differ from those written", w.synced)
	default:
		return nil
	}
	return damagedFile(l.dir, name, what+lostWrites)
}

// lostWrites is appended to the description of a file that has lost bytes.
const lostWrites = "; acknowledged writes may be lost"

// sumOf returns the length of a file, and the checksum of its bytes up to a length.
func sumOf(files vfs.FS, path string, upTo int64) (n int64, sum uint32, err error) {
	f, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	n, err = io.Copy(h, io.LimitReader(f, upTo))
	return n, h.Sum32(), err
}

func readWhole(files vfs.FS, path string) ([]byte, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// run starts a goroutine that writes the note when files have grown, until close is called.
func (l *ledger) run(failed func(error)) {
	l.stopped.Go(func() {
		t := time.NewTicker(ledgerEvery)
		defer t.Stop()
		for fails := false; ; {
			select {
			case <-l.stop:
				return
			case <-t.C:
			}
			err := panics.Call("writing the ledger", l.writeIfChanged)
			if err != nil && !fails {
				failed(err)
			}
			fails = err != nil
		}
	})
}

// close stops the goroutine of run. If inOrder is set, it then writes a last note with all synced bytes.
func (l *ledger) close(inOrder bool) error {
	close(l.stop)
	l.stopped.Wait()
	if !inOrder {
		return nil
	}
	return l.writeIfChanged()
}

// writeIfChanged writes the note if it has changed.
func (l *ledger) writeIfChanged() error {
	l.noting.Lock()
	defer l.noting.Unlock()
	l.mu.Lock()
	changed := l.changed
	l.mu.Unlock()
	if !changed || l.isHeld {
		return nil
	}
	return l.write()
}

// releaseNotes writes the first note of a new engine. It does nothing for other engines.
func (l *ledger) releaseNotes() error {
	l.noting.Lock()
	defer l.noting.Unlock()
	if !l.isHeld {
		return nil
	}
	if err := l.write(); err != nil {
		return err
	}
	l.isHeld = false
	return nil
}

// setPebble sets Pebble's format major version for the next note.
func (l *ledger) setPebble(version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.header.Pebble != version {
		l.header.Pebble, l.changed = version, true
	}
}

// namedManifest returns the manifest in the name of a marker file, or "" if the file isn't a marker of the manifest.
func (l *ledger) namedManifest(path string) string {
	rest, ok := strings.CutPrefix(l.fs.PathBase(path), "marker.manifest.")
	if !ok || l.fs.PathDir(path) != l.dir {
		return ""
	}
	_, manifest, _ := strings.Cut(rest, ".")
	return manifest
}

// setManifest sets the current manifest for the next note, and removes the entries of earlier manifests, which Pebble
// never reads again.
func (l *ledger) setManifest(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.header.Manifest, l.changed = name, true
	l.fresh = true // The note must not be on the disk before the marker.
	l.dropOldManifests()
}

// dropOldManifests removes the entries of manifests before the current one. The caller must hold mu.
func (l *ledger) dropOldManifests() {
	maps.DeleteFunc(l.files, func(name string, _ *written) bool {
		return strings.HasPrefix(name, "MANIFEST-") && manifestNumber(name) < manifestNumber(l.header.Manifest)
	})
}

// setDescription sets the description of the store, and returns when it is durable.
func (l *ledger) setDescription(text []byte) error {
	l.noting.Lock()
	defer l.noting.Unlock()
	l.mu.Lock()
	before := l.header.Store
	l.header.Store = slices.Clone(text)
	l.mu.Unlock()
	if bytes.Equal(before, text) {
		return nil
	}
	err := l.write()
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.header.Store = before
	}
	return err
}

func (l *ledger) currentHeader() ledgerHeader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.header
}

// write writes the note. The caller must hold noting. The note remains true while it is written, because during that
// time files may grow but aren't removed.
func (l *ledger) write() error {
	list := ledgerText{Files: []noted{}}
	l.mu.Lock()
	list.ledgerHeader = l.header
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		if w := l.files[name]; w.synced > 0 && !strings.HasSuffix(name, ".dbtmp") {
			list.Files = append(list.Files, noted{name, w.synced, fmt.Sprintf("%08x", w.syncSum)})
		}
	}
	fresh := l.fresh
	l.changed, l.fresh = false, false
	l.mu.Unlock()
	var err error
	if fresh { // Otherwise a note could list a file whose name is lost in a power failure.
		err = syncDirectory(l.fs, l.dir)
	}
	if err == nil {
		err = writeLedger(l.fs, l.dir, list)
	}
	if err == nil && l.isWithdrawn.Load() {
		if err = l.fs.Remove(l.fs.PathJoin(l.dir, ledgerName+withdrawnSuffix)); err == nil ||
			errors.Is(err, fs.ErrNotExist) {
			l.isWithdrawn.Store(false)
			err = nil
		}
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed, l.fresh = true, l.fresh || fresh
	}
	return err
}

func syncDirectory(files vfs.FS, dir string) error {
	d, err := files.OpenDir(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("pebble: recording synced writes: %w", err)
	}
	return nil
}

// hasOwnManifest reports whether a manifest was created since the engine was opened.
func (l *ledger) hasOwnManifest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ownManifest
}

// lengths returns the written bytes of each file, synced or not.
func (l *ledger) lengths() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	lengths := make(map[string]int64, len(l.files))
	for name, w := range l.files {
		lengths[name] = w.bytes
	}
	return lengths
}

// The methods below are called before and after Pebble's operations on files, so that the ledger knows the state of the
// files.

func (l *ledger) recordCreated(path string) {
	if name, ok := l.name(path); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ownManifest = l.ownManifest || strings.HasPrefix(name, manifestPrefix)
		l.files[name], l.fresh = &written{}, true
	}
}

// beforeWrite is called before a write, and returns the argument for recordWritten. The file system may modify p: MemFS
// does, with the build tag invariants.
func (l *ledger) beforeWrite(path string, p []byte) (then written) {
	if name, ok := l.name(path); ok {
		l.mu.Lock()
		w := l.files[name]
		if w != nil {
			then = *w
		}
		l.mu.Unlock()
		then.bytes, then.sum = then.bytes+int64(len(p)), crc32.Update(then.sum, castagnoli, p)
	}
	return then
}

func (l *ledger) recordWritten(path string, then written, whole bool) {
	if name, ok := l.name(path); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		if w := l.files[name]; w != nil {
			w.bytes, w.sum, w.torn = then.bytes, then.sum, w.torn || !whole
		}
	}
}

// recordSynced records that the bytes written before a sync are durable. at is the result of beforeSync.
func (l *ledger) recordSynced(path string, at written) {
	if name, ok := l.name(path); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		if w := l.files[name]; w != nil && !w.torn && at.bytes > w.synced {
			w.synced, w.syncSum, l.changed = at.bytes, at.sum, true
		}
	}
}

// beforeSync is called before a sync.
func (l *ledger) beforeSync(path string) (at written) {
	if name, ok := l.name(path); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		if w := l.files[name]; w != nil {
			return *w
		}
	}
	return written{}
}

func (l *ledger) recordRenamed(from, to string) {
	_, wasNoted := l.name(from)
	name, ok := l.name(to)
	if !wasNoted || !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.fs.PathBase(from)
	if w := l.files[old]; w != nil {
		delete(l.files, old)
		l.files[name], l.changed, l.fresh = w, true, true
	}
}

// beforeRemove is called before a file is removed or truncated. When it returns without an error, the note doesn't list
// the file.
func (l *ledger) beforeRemove(path string) error {
	name, ok := l.name(path)
	if !ok {
		return nil
	}
	l.noting.Lock()
	defer l.noting.Unlock()
	l.mu.Lock()
	w := l.files[name]
	delete(l.files, name)
	l.mu.Unlock()
	if w == nil || w.synced == 0 || l.isHeld {
		return nil
	}
	err := l.write()
	if err == nil || l.withdrawNote() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[name] = w
	return err
}

// withdrawNote renames a note that can't be replaced because the disk is full. A withdrawn note may list missing files,
// so files can be removed to free space. The next note that is written replaces it.
func (l *ledger) withdrawNote() error {
	path := l.fs.PathJoin(l.dir, ledgerName)
	if err := l.fs.Rename(path, path+withdrawnSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.isWithdrawn.Store(true)
	return syncDirectory(l.fs, l.dir)
}
