package badblocks

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/time/rate"

	"github.com/cassia-db/cassia/storage/engine/damagedblock"
)

// List contains the blocks of sorted files in which Pebble has detected a wrong checksum. On a mismatch, Pebble
// searches for a flipped bit by computing a checksum per bit. That takes half a second of CPU for a block of 40 KB each
// time the block is read, and a query for neighboring rows reads the block about a hundred times. So from the second
// read on, the list compares the checksums of these blocks first, and returns the error to Pebble.
//
// Pebble also retries compactions and the collection of statistics without a pause while a file is damaged, about 800
// times per second. So reads of bad blocks are slowed down if there are many, except in a directory that is opened for
// reading only, in which Pebble does no background work.
type List struct {
	any   atomic.Bool
	mu    sync.Mutex
	known map[string][]knownBlock // by file name
	reads *rate.Limiter
	pause func() // called for each read above the rate
}

// DisablePauses removes the limit on the rate of reads. It must be called before the list is used.
func (l *List) DisablePauses() { l.reads.SetLimit(rate.Inf) }

// Reads of bad blocks are limited to badReads per second, after a burst of badReadsAtOnce reads. A query for
// neighboring rows needs about a hundred.
const badReads, badReadsAtOnce = 20, 500

// maxKnown is the max number of files in a list, and the max number of blocks per file.
const maxKnown = 1000

// New returns an empty list.
func New() *List {
	return &List{
		reads: rate.NewLimiter(badReads, badReadsAtOnce), pause: func() { time.Sleep(time.Second / badReads) },
	}
}

// knownBlock is a block with the error of the read that found its damage.
type knownBlock struct {
	blockAt
	err *damagedblock.BlockError
}

// blockAt is the position of a block with its trailer in its file. Its offset is -1 for damage that isn't in a block.
type blockAt struct {
	offset int64
	length int
}

// blockTrailerLen is the length of a block's trailer: a byte for the compression, and the checksum of the block and
// this byte.
const blockTrailerLen = 5

// checksumMismatch matches Pebble's error for a block with a wrong checksum: its offset, and its length without the
// trailer.
var checksumMismatch = regexp.MustCompile(`block (\d+)/(\d+): crc32c checksum mismatch`)

// Record adds the damage that err describes. err is the error of a read of a sorted file.
func (l *List) Record(path string, err error) {
	name := filepath.Base(path)
	block := knownBlock{blockAt{offset: -1}, LocateIn(name, err)}
	if found := checksumMismatch.FindStringSubmatch(err.Error()); found != nil {
		block.offset, _ = strconv.ParseInt(found[1], 10, 64)
		length, _ := strconv.Atoi(found[2])
		block.length = length + blockTrailerLen
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.known[name], func(b knownBlock) bool { return b.blockAt == block.blockAt }) {
		return
	}
	if l.known == nil || len(l.known) > maxKnown || len(l.known[name]) > maxKnown {
		l.known = map[string][]knownBlock{}
	}
	l.known[name] = append(l.known[name], block)
	l.any.Store(true)
}

// Blocks returns the errors of the damaged blocks, in the order of the files and of the blocks. It omits blocks that
// were readable when they were read again.
func (l *List) Blocks() (blocks []*damagedblock.BlockError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, known := range l.known {
		for _, b := range known {
			blocks = append(blocks, b.err)
		}
	}
	slices.SortFunc(blocks, func(a, b *damagedblock.BlockError) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
	})
	return blocks
}

// checkRead returns an error if p is a known bad block and its checksum is still wrong. If the checksum is correct, it
// removes the block from the list.
func (l *List) checkRead(name string, p []byte, offset int64) error {
	if !l.any.Load() {
		return nil
	}
	at := blockAt{offset, len(p)}
	isAt := func(b knownBlock) bool { return b.blockAt == at }
	l.mu.Lock()
	known := slices.ContainsFunc(l.known[name], isAt)
	l.mu.Unlock()
	if !known {
		return nil
	}
	got, want := MaskedCRC(p[:len(p)-blockTrailerLen+1]), binary.LittleEndian.Uint32(p[len(p)-4:])
	if got == want {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.known[name] = slices.DeleteFunc(l.known[name], isAt)
		return nil
	}
	if !l.reads.Allow() {
		l.pause()
	}
	return KnownBlockError(fmt.Sprintf("pebble: file %s: block %d/%d: crc32c checksum mismatch %x != %x",
		strings.TrimSuffix(name, ".sst"), offset, len(p)-blockTrailerLen, want, got))
}

// KnownBlockError is the error of a later read of a bad block, with the wording of Pebble's error.
type KnownBlockError string

func (e KnownBlockError) Error() string { return string(e) }

// Unwrap makes Pebble treat the error as damage.
func (e KnownBlockError) Unwrap() error { return pebbledb.ErrCorruption }

// FS returns a file system that compares the checksums of the blocks in the list when they are read.
func (l *List) FS(files vfs.FS) vfs.FS { return checkedFS{files, l} }

// checkedFS is a file system that compares the checksums of known bad blocks when they are read.
type checkedFS struct {
	vfs.FS
	blocks *List
}

func (f checkedFS) Unwrap() vfs.FS { return f.FS }

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
	blocks *List
}

func (f *checkedFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if err == nil {
		err = f.blocks.checkRead(f.name, p, offset)
	}
	return n, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MaskedCRC returns the CRC-32C of p, masked as in LevelDB's format.
func MaskedCRC(p []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(p, castagnoli), -15) + 0xa282ead8
}
