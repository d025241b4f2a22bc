package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/record"
)

// manifestState is the content of a manifest after its last edit: the files of the database's tables.
//
// Pebble exports no reader of manifests. A repair needs one for directories that Pebble rejects: it compares the sizes
// of files, and decides whether a backup has the same file.
type manifestState struct {
	tables map[uint64]tableEntry // by table number
	// shared has the size, by file number, of each file that virtual tables use in part.
	shared map[uint64]uint64
	// minLog is the number of the first log with rows that aren't in tables.
	minLog uint64
	// isWhole is set if the manifest ends with a complete edit.
	isWhole bool
}

// tableEntry is a manifest's entry for a table.
type tableEntry struct {
	file              uint64 // number of the file; virtual tables may share one
	size              uint64
	isVirtual         bool
	smallest, largest string // internal keys
	firstSeq, lastSeq uint64
	created           uint64 // seconds since 1970; 0: unknown
}

var errManifest = errors.New("pebble: unknown content of a manifest")

// Tags of the fields of an edit and of a table's entry, as in Pebble's internal/manifest.
const (
	tagComparer       = 1
	tagMinLog         = 2
	tagNextFile       = 3
	tagLastSeq        = 4
	tagDeletedTable   = 6
	tagPreviousLog    = 9
	tagTable4         = 103
	tagTable5         = 104 // with range keys
	tagSharedFile     = 105
	tagUnsharedFile   = 106
	entryEnd          = 1
	entryCreated      = 6
	entryVirtual      = 66
	entryPrefix       = 67
	entrySuffix       = 68
	entryUnsafe       = 1 << 6 // a field that a reader must support
	boundsOfPointKeys = 1 << 0
)

// readManifestState reads a manifest. Like Pebble, it ignores the bytes after the last complete edit.
func readManifestState(r io.Reader) (*manifestState, error) {
	s := &manifestState{tables: map[uint64]tableEntry{}, shared: map[uint64]uint64{}}
	for edits, n := record.NewReader(r, 0), 0; ; n++ {
		edit, err := edits.Next()
		var text []byte
		if err == nil {
			text, err = io.ReadAll(edit)
		}
		if err == io.EOF || record.IsInvalidRecord(err) {
			if n == 0 {
				return nil, fmt.Errorf("%w: contains no complete edit", errManifest)
			}
			s.isWhole = err == io.EOF
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		if err := s.apply(text); err != nil {
			return nil, err
		}
	}
}

// apply applies an edit. Deletions are applied first: a table that moves to another level is deleted and added by the
// same edit.
func (s *manifestState) apply(text []byte) error {
	added := map[uint64]tableEntry{}
	f := fields{left: text}
	for len(f.left) > 0 && f.err == nil {
		switch tag := f.number(); tag {
		case tagComparer:
			f.text()
		case tagMinLog:
			s.minLog = f.number()
		case tagNextFile, tagLastSeq, tagPreviousLog:
			f.number()
		case tagDeletedTable:
			f.number() // the level
			delete(s.tables, f.number())
		case tagTable4, tagTable5:
			number, entry := f.table(tag)
			added[number] = entry
		case tagSharedFile:
			file := f.number()
			s.shared[file] = f.number()
		case tagUnsharedFile:
			delete(s.shared, f.number())
		default:
			return fmt.Errorf("%w: unknown tag %d", errManifest, tag)
		}
	}
	for number, entry := range added {
		s.tables[number] = entry
	}
	return f.err
}

// fields reads the fields of an edit. After an error it returns zeros.
type fields struct {
	left []byte
	err  error
}

func (f *fields) number() uint64 {
	v, n := binary.Uvarint(f.left)
	if n <= 0 {
		f.left, f.err = nil, fmt.Errorf("%w: a number is incomplete", errManifest)
		return 0
	}
	f.left = f.left[n:]
	return v
}

func (f *fields) text() []byte {
	n := f.number()
	if n > uint64(len(f.left)) {
		f.left, f.err = nil, fmt.Errorf("%w: a string is incomplete", errManifest)
		return nil
	}
	text := f.left[:n]
	f.left = f.left[n:]
	return text
}

func (f *fields) table(tag uint64) (number uint64, t tableEntry) {
	f.number() // the level
	number = f.number()
	t.file, t.size = number, f.number()
	bounds := byte(boundsOfPointKeys)
	if tag == tagTable5 && len(f.left) > 0 {
		bounds, f.left = f.left[0], f.left[1:]
	}
	if bounds&boundsOfPointKeys != 0 {
		t.smallest, t.largest = string(f.text()), string(f.text())
	}
	if tag == tagTable5 {
		f.text()
		f.text()
	}
	t.firstSeq, t.lastSeq = f.number(), f.number()
	for f.err == nil {
		switch field := f.number(); {
		case field == entryEnd:
			return number, t
		case field == entryCreated:
			t.created, _ = binary.Uvarint(f.text())
		case field == entryVirtual:
			t.isVirtual, t.file = true, f.number()
		case field == entryPrefix, field == entrySuffix, field&entryUnsafe == 0:
			f.text()
		default:
			f.err = fmt.Errorf("%w: unknown field %d of a table", errManifest, field)
		}
	}
	return number, t
}

// liveFile is a file in a manifest, with its tables.
type liveFile struct {
	size   uint64
	tables []tableEntry
}

// liveFiles returns the files of all tables, by number.
func (s *manifestState) liveFiles() map[uint64]*liveFile {
	files := map[uint64]*liveFile{}
	for _, t := range s.tables {
		f := files[t.file]
		if f == nil {
			f = &liveFile{size: t.size}
			if t.isVirtual {
				f.size = s.shared[t.file]
			}
			files[t.file] = f
		}
		f.tables = append(f.tables, t)
	}
	return files
}

// isSame reports whether the entries of two manifests are for the same file. A restored store reuses the file numbers
// of the original store, for files with other sizes, times, or sequence numbers.
func (f *liveFile) isSame(other *liveFile) bool {
	if f.size != other.size {
		return false
	}
	for _, a := range f.tables {
		for _, b := range other.tables {
			if a.firstSeq != b.firstSeq || a.lastSeq != b.lastSeq {
				return false
			}
			if a.created != b.created && a.created != 0 && b.created != 0 { // Virtual tables have no time.
				return false
			}
			if !a.isVirtual && !b.isVirtual && (a.smallest != b.smallest || a.largest != b.largest) {
				return false
			}
		}
	}
	return true
}

// bounds returns the smallest and largest user keys of the file's tables.
func (f *liveFile) bounds() (smallest, largest []byte) {
	for i, t := range f.tables {
		first, last := userKey(t.smallest), userKey(t.largest)
		if i == 0 || first < string(smallest) {
			smallest = []byte(first)
		}
		if i == 0 || last > string(largest) {
			largest = []byte(last)
		}
	}
	return smallest, largest
}

// hasKeysIn reports whether a table has keys in a range. Virtual tables don't use all keys of their files.
func (f *liveFile) hasKeysIn(b badRange) bool {
	return slices.ContainsFunc(f.tables, func(t tableEntry) bool {
		return t.largest == "" ||
			string(b.start) <= userKey(t.largest) && (b.end == nil || string(b.end) > userKey(t.smallest))
	})
}

// userKey removes the last 8 bytes of an internal key: the sequence number and the kind.
func userKey(internal string) string { return internal[:max(0, len(internal)-8)] }
