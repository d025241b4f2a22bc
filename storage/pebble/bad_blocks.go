package pebble

import (
	"encoding/binary"
	"fmt"
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
)

// badBlocks are the blocks of sorted files in which Pebble has detected a wrong checksum. On a mismatch, Pebble
// searches for a flipped bit by computing a checksum per bit. That takes half a second of CPU for a block of 40 KB each
// time the block is read, and a query for neighboring rows reads the block about a hundred times. So from the second
// read on, this package compares the checksums of these blocks first, and returns the error to Pebble.
//
// Pebble also retries compactions and the collection of statistics without a pause while a file is damaged, about 800
// times per second. So reads of bad blocks are slowed down if there are many.
type badBlocks struct {
	any   atomic.Bool
	mu    sync.Mutex
	known map[string][]blockAt // by file name
	reads *rate.Limiter
	pause func() // called for each read above the rate
}

// The rate of reads of bad blocks is badReads per second, after badReadsAtOnce reads. A query for neighboring rows
// needs about a hundred.
const badReads, badReadsAtOnce = 20, 500

func newBadBlocks() badBlocks {
	return badBlocks{
		reads: rate.NewLimiter(badReads, badReadsAtOnce), pause: func() { time.Sleep(time.Second / badReads) },
	}
}

// blockAt is the position of a block with its trailer in its file.
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

// record records the bad block in an error of a file.
func (b *badBlocks) record(path string, err error) {
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

// checkRead returns an error if p is a known bad block and its checksum is still wrong.
func (b *badBlocks) checkRead(name string, p []byte, offset int64) error {
	if !b.any.Load() {
		return nil
	}
	b.mu.Lock()
	known := slices.Contains(b.known[name], blockAt{offset, len(p)})
	b.mu.Unlock()
	if !known {
		return nil
	}
	got, want := maskedSum(p[:len(p)-blockTrailerLen+1]), binary.LittleEndian.Uint32(p[len(p)-4:])
	if got == want {
		return nil
	}
	if !b.reads.Allow() {
		b.pause()
	}
	return badBlockError(fmt.Sprintf("pebble: file %s: block %d/%d: crc32c checksum mismatch %x != %x",
		strings.TrimSuffix(name, ".sst"), offset, len(p)-blockTrailerLen, want, got))
}

// badBlockError is an error with the wording of Pebble's.
type badBlockError string

func (e badBlockError) Error() string { return string(e) }

// Unwrap makes Pebble treat the error as damage.
func (e badBlockError) Unwrap() error { return pebbledb.ErrCorruption }

// checkedFS is a file system that compares the checksums of known bad blocks when they are read.
type checkedFS struct {
	vfs.FS
	blocks *badBlocks
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
	blocks *badBlocks
}

func (f *checkedFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if err == nil {
		err = f.blocks.checkRead(f.name, p, offset)
	}
	return n, err
}
