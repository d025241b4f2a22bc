package pebble

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// badBlocks are the blocks of sorted files that Pebble has read and found without their checksum. It then looks for the one bit that was flipped, by a
// checksum for each bit: half a second of CPU for a block of 40 KB, each time that it is read, and a query of its neighbours reads it some hundred times.
// So from the second time on their files compare the checksums of these blocks, and Pebble gets the error.
type badBlocks struct {
	any   atomic.Bool
	mu    sync.Mutex
	known map[string][]blockAt // by the files' names
}

// blockAt is where a block stands in its file, with its trailer.
type blockAt struct {
	offset int64
	length int
}

// blockTrailerLen is the length of what follows a block: a byte for its compression, and the checksum of both.
const blockTrailerLen = 5

// checksumMismatch is what Pebble's error has of a block without its checksum: its offset, and its length without the trailer.
var checksumMismatch = regexp.MustCompile(`block (\d+)/(\d+): crc32c checksum mismatch`)

// note learns of an error of a file.
func (b *badBlocks) note(path string, err error) {
	found := checksumMismatch.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	offset, _ := strconv.ParseInt(found[1], 10, 64)
	length, _ := strconv.Atoi(found[2])
	at := blockAt{offset, length + blockTrailerLen}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := filepath.Base(path)
	if slices.Contains(b.known[name], at) {
		return
	}
	if b.known == nil || len(b.known) > maxBadRanges || len(b.known[name]) > maxBadRanges {
		b.known = map[string][]blockAt{}
	}
	b.known[name] = append(b.known[name], at)
	b.any.Store(true)
}

// check returns an error if a block that is known has no checksum of its own this time, either.
func (b *badBlocks) check(name string, p []byte, offset int64) error {
	if !b.any.Load() {
		return nil
	}
	b.mu.Lock()
	known := slices.Contains(b.known[name], blockAt{offset, len(p)})
	b.mu.Unlock()
	if !known {
		return nil
	}
	sum := crc32.Checksum(p[:len(p)-blockTrailerLen+1], castagnoli) // stored masked, as in LevelDB's table format
	got, want := (sum>>15|sum<<17)+0xa282ead8, binary.LittleEndian.Uint32(p[len(p)-4:])
	if got == want {
		return nil
	}
	return badBlockError(fmt.Sprintf("pebble: file %s: block %d/%d: crc32c checksum mismatch %x != %x",
		strings.TrimSuffix(name, ".sst"), offset, len(p)-blockTrailerLen, want, got))
}

// badBlockError has Pebble's words.
type badBlockError string

func (e badBlockError) Error() string { return string(e) }

// Unwrap makes it an error that Pebble takes for damage.
func (e badBlockError) Unwrap() error { return pebbledb.ErrCorruption }

// checkedFS compares the checksums of blocks that are known to be damaged.
type checkedFS struct {
	vfs.FS
	blocks *badBlocks
}

// Unwrap implements vfs.FS.
func (f checkedFS) Unwrap() vfs.FS { return f.FS }

// Open implements vfs.FS.
func (f checkedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return &checkedFile{File: file, name: filepath.Base(name), blocks: f.blocks}, nil
}

// checkedFile is a sorted file.
type checkedFile struct {
	vfs.File
	name   string
	blocks *badBlocks
}

func (f *checkedFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if err == nil {
		err = f.blocks.check(f.name, p, offset)
	}
	return n, err
}
