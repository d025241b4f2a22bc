package pebble

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// noted is a ledger's entry for a file.
type noted struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	CRC32C string `json:"crc32c"`
}

// ledgerHeader is the part of the note that describes the whole directory.
type ledgerHeader struct {
	Version int `json:"version"`
	// Format is formatVersion. Pebble is Pebble's format major version or a lower one; 0 if it is unknown.
	Format string `json:"format"`
	Pebble uint64 `json:"pebble,omitempty"`
	// Manifest is the current manifest or the previous one. If it is the previous one, the note also lists the current
	// one, which has a higher number.
	Manifest string `json:"manifest,omitempty"`
	// Store is the last description passed to DescribeStore. It is nil if there is none.
	Store json.RawMessage `json:"store,omitempty"`
}

type ledgerText struct {
	ledgerHeader
	Files []noted `json:"files"`
}

// readNote returns the ledger of a directory without comparing the files with it. The ledger is nil if the note is
// missing or damaged.
func readNote(files vfs.FS, dir string) (*ledger, []ledgerProblem) {
	l := newLedger(files, dir)
	l.isHeld = false
	text, err := readWhole(files, files.PathJoin(dir, ledgerName))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = readWhole(files, files.PathJoin(dir, ledgerName+withdrawnSuffix))
		l.isWithdrawn.Store(err == nil)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, []ledgerProblem{{ledgerName,
			damagedFile(dir, ledgerName, "missing; without it, the other files can't be verified")}}
	case err != nil:
		return nil, []ledgerProblem{{ledgerName, fmt.Errorf("pebble: open %s: %w", dir, err)}}
	}
	if err := l.parse(text); err != nil {
		return nil, []ledgerProblem{{ledgerName,
			damagedFile(dir, ledgerName, "damaged; without it, the other files can't be verified")}}
	}
	return l, nil
}

// parse parses the text of a note.
func (l *ledger) parse(text []byte) error {
	sum, rest, ok := bytes.Cut(text, []byte(" "))
	if !ok || string(sum) != fmt.Sprintf("%08x", crc32.Checksum(rest, castagnoli)) {
		return errLedger
	}
	var list ledgerText
	if err := json.Unmarshal(rest, &list.ledgerHeader); err != nil {
		return fmt.Errorf("%w: %w", errLedger, err)
	}
	if l.header = list.ledgerHeader; l.header.Version != ledgerVersion {
		return nil // checkFormat will reject it.
	}
	if err := json.Unmarshal(rest, &list); err != nil {
		return fmt.Errorf("%w: %w", errLedger, err)
	}
	for _, n := range list.Files {
		sum, err := strconv.ParseUint(n.CRC32C, 16, 32)
		if err != nil || !isNoted(n.Name) {
			return errLedger
		}
		l.files[n.Name] = &written{bytes: n.Bytes, synced: n.Bytes, sum: uint32(sum), syncSum: uint32(sum)}
	}
	l.dropOldManifests()
	return nil
}

// checkFormat returns an error if this release doesn't support a format of the directory, or if opts.Admit rejects the
// store.
func (l *ledger) checkFormat(opts *Options) error {
	switch {
	case l.header.Version != ledgerVersion:
		return fmt.Errorf(
			"%w: %s of %s has version %d; this release supports version %d. Use the release of Cassia that wrote it",
			errBadFormat, ledgerName, l.dir, l.header.Version, ledgerVersion,
		)
	case l.header.Format != formatVersion:
		return fmt.Errorf("%w: %s has format %q; this release supports %q. Use the release of Cassia that wrote it",
			errBadFormat, l.dir, l.header.Format, formatVersion)
	case opts.Admit != nil && len(l.header.Store) > 0:
		return opts.Admit(l.header.Store)
	}
	return nil
}

var errLedger = errors.New("pebble: the file is not a record of synced files")

func manifestNumber(name string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(name, "MANIFEST-"), 10, 64)
	return n
}

func writeLedger(files vfs.FS, dir string, list ledgerText) error {
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("pebble: recording synced writes: %w", err)
	}
	text = fmt.Appendf(nil, "%08x %s", crc32.Checksum(text, castagnoli), text)
	path := files.PathJoin(dir, ledgerName)
	f, err := files.Create(path+".tmp", vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(text)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = files.Rename(path+".tmp", path)
	}
	if err != nil {
		return fmt.Errorf("pebble: recording synced writes: %w", err)
	}
	return syncDirectory(files, dir)
}

// noteCopy writes the note of a directory to which no process writes, so that all bytes count as synced. It keeps the
// header of an existing readable note.
func noteCopy(files vfs.FS, dir string) error {
	header := ledgerHeader{Version: ledgerVersion, Format: formatVersion}
	if l, _ := readNote(files, dir); l != nil {
		header = l.header
	}
	header.Manifest = ""
	return noteCopyOf(files, dir, header)
}

func noteCopyOf(files vfs.FS, dir string, header ledgerHeader) error {
	names, err := files.List(dir)
	if err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	slices.Sort(names)
	if desc, err := pebbledb.Peek(dir, readOnlyFS{files}); err == nil && desc.Exists {
		header.Manifest = files.PathBase(desc.ManifestFilename)
	}
	list := ledgerText{ledgerHeader: header, Files: []noted{}}
	for _, name := range names {
		if !isNoted(name) {
			continue
		}
		n, sum, err := sumOf(files, files.PathJoin(dir, name), 1<<62)
		if err != nil {
			return fmt.Errorf("pebble: %w", err)
		}
		list.Files = append(list.Files, noted{name, n, fmt.Sprintf("%08x", sum)})
	}
	return writeLedger(files, dir, list)
}
