package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// FS is the file system of an engine's files.
type FS = vfs.FS

// Options configure an Engine. The memory of the engine is limited to CacheBytes plus (MemTables+1) times
// MemTableBytes.
type Options struct {
	// CacheBytes is the size of the cache of decompressed blocks. Default 256 MiB.
	CacheBytes int64
	// MemTableBytes is the size at which a memtable is written as a sorted file. Larger memtables reduce compaction,
	// but take memory and lengthen the log that is replayed at start: design/memory.md. Default 16 MiB.
	MemTableBytes int64
	// MemTables is the max number of memtables, including the current one. If all are full, writes wait.
	// At least 2. Default 3.
	MemTables int
	// MaxOpenFiles is the max number of open files. Default 1000.
	MaxOpenFiles int
	// BlockBytes is the size of a block before compression: the unit of reading, decompression and caching. Large
	// blocks compress better, small blocks make reads of single rows cheaper. Default 64 KiB.
	BlockBytes int
	// ZstdLevel is the compression level of blocks: 1 to 19. Rows of the staging log, which exist only for hours, use a
	// faster compression. Default 3.
	ZstdLevel int
	// IngestBytes is the min size of the sealed rows of a Write that are written as sorted files directly: see
	// design/sealing.md. Default 512 KiB.
	IngestBytes int
	// Compactions is the max number of concurrent compactions. Default: half of the CPUs, at least 1.
	Compactions int
	// ReserveBytes is the free disk space required for writes. If less is free, Write returns engine.ErrUnavailable,
	// except for deletes. Writes with a context of engine.WithMakingRoom require only an eighth of ReserveBytes. Pebble
	// can't continue once its log can't be written because the disk is full, and compactions, which free space, need
	// some space themselves. 0 means no reserve. Default 512 MiB.
	ReserveBytes uint64
	// DropDelay is the approximate time until the space of dropped or deleted rows is freed. Shorter delays cause more
	// compactions. Default 2 minutes.
	DropDelay time.Duration
	// StageDelay is the time without deletes in the staging log after which its empty slots are freed. If deletes
	// continue, slots are freed after twice this time. Shorter delays cause more flushes. Default 2 seconds.
	StageDelay time.Duration
	// ReadOnly opens the directory for reading only: no file is created, changed or removed, and writes return
	// engine.ErrReadOnly. The log is replayed into memory at each open. Default false.
	ReadOnly bool
	// MustExist makes Open return ErrNoData if there is no engine, instead of creating one. Default false.
	MustExist bool
	// Admit, if set, is called with the last description passed to Engine.DescribeStore, before anything is written. If
	// it returns an error, Open returns the error and leaves the directory unchanged.
	Admit func(description []byte) error
	// FS is the file system. nil means the operating system's. Tests use a CrashableFS.
	FS FS
	// Logger logs events for operators.
	Logger *slog.Logger
	// Waiting, if set, makes Open wait when space, inodes, file handles or permissions are missing, and retry until the
	// problem is solved or the context ends. It is called with each error, and with nil when Open continues. If it
	// isn't set, Open returns the error.
	Waiting func(error)
	// OnFatal, if set, is called once, with the reason, when the engine stops accepting writes until the process
	// restarts. Reads still work. The process should then shut down. OnFatal must not call the engine.
	OnFatal func(error)
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		CacheBytes:    256 << 20,
		MemTableBytes: 16 << 20,
		MemTables:     3,
		MaxOpenFiles:  1000,
		BlockBytes:    64 << 10,
		ZstdLevel:     3,
		IngestBytes:   512 << 10,
		Compactions:   max(1, runtime.GOMAXPROCS(0)/2),
		ReserveBytes:  512 << 20,
		DropDelay:     2 * time.Minute,
		StageDelay:    2 * time.Second,
		Logger:        slog.New(slog.DiscardHandler),
	}
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	var errs []error
	within := func(name string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("pebble: %s is %d; must be between %d and %d", name, v, low, high))
		}
	}
	within("CacheBytes", o.CacheBytes, 1<<20, 1<<40)
	within("MemTableBytes", o.MemTableBytes, 1<<20, 1<<30)
	within("MemTables", int64(o.MemTables), 2, 64)
	within("MaxOpenFiles", int64(o.MaxOpenFiles), 64, 1<<20)
	within("BlockBytes", int64(o.BlockBytes), 1<<10, 1<<20)
	within("ZstdLevel", int64(o.ZstdLevel), 1, 19)
	within("IngestBytes", int64(o.IngestBytes), 1, 1<<40)
	within("Compactions", int64(o.Compactions), 1, 1<<10)
	within("DropDelay", int64(o.DropDelay), int64(time.Millisecond), int64(24*time.Hour))
	within("StageDelay", int64(o.StageDelay), int64(time.Millisecond), int64(24*time.Hour))
	if o.Logger == nil {
		errs = append(errs, errors.New("pebble: Logger is nil"))
	}
	return errors.Join(errs...)
}

// pebbleOptions converts o to Pebble's options.
func (o *Options) pebbleOptions(events *pebbledb.EventListener, lock *pebbledb.Lock) *pebbledb.Options {
	p := &pebbledb.Options{
		Lock:                        lock,
		EventListener:               events,
		Cleaner:                     cleaner{},
		Merger:                      newMerger(),
		FormatMajorVersion:          pebbledb.FormatTableFormatV6,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: o.MemTables,
		MaxOpenFiles:                o.MaxOpenFiles,
		CompactionConcurrencyRange:  func() (int, int) { return 1, o.Compactions },
		FlushDelayDeleteRange:       o.DropDelay / 2,
		// Pebble compacts level 0 as soon as half of this number of files overlap. The files of a slot of half a
		// million series don't overlap each other and count as one, so its window is rewritten after six slots rather
		// than after each. L0StopWritesThreshold is high, so that a burst of sealing doesn't stop writes.
		L0CompactionThreshold: 12,
		L0StopWritesThreshold: 64,
		LBaseMaxBytes:         256 << 20,
	}
	p.TargetFileSizes[0] = 8 << 20
	compression := o.compression()
	for i := range p.Levels {
		p.Levels[i].BlockSize = o.BlockBytes
		p.Levels[i].IndexBlockSize = o.BlockBytes
		p.Levels[i].Compression = func() *sstable.CompressionProfile { return compression }
	}
	p.Experimental.SpanPolicyFunc = spanPolicy
	return p
}

// compression is zstd for rows, and Pebble's fastest compression for indexes. A block that shrinks by less than 5 %
// isn't compressed.
func (o *Options) compression() *sstable.CompressionProfile {
	p := *sstable.ZstdCompression
	p.Name = fmt.Sprintf("cassia-zstd%d", o.ZstdLevel)
	p.DataBlocks.Level = uint8(o.ZstdLevel)
	p.ValueBlocks = p.DataBlocks
	p.OtherBlocks = sstable.FastestCompression.OtherBlocks
	p.MinReductionPercent = 5
	return &p
}

// spanPolicy selects a fast compression for the staging log. It also makes files end at the boundaries of some tables.
// So files of the staging log contain nothing else, and are removed as a whole when their blobs are deleted. A file
// with rows of two tables of sealed rows would overlap all files between these rows.
func spanPolicy(start []byte) (pebbledb.SpanPolicy, []byte, error) {
	for _, end := range spanEnds {
		if len(start) == 0 || start[0] < end {
			fast := len(start) > 0 && start[0] == engine.Stage.ID
			return pebbledb.SpanPolicy{PreferFastCompression: fast}, []byte{end}, nil
		}
	}
	return pebbledb.SpanPolicy{}, nil, nil
}

// spanEnds are the first bytes of keys at which a new file starts.
var spanEnds = []byte{
	engine.Stage.ID, engine.Stage.ID + 1, engine.Raw.ID, engine.R5m.ID, engine.R1h.ID, engine.R1h.ID + 1,
	engine.RawPages.ID, engine.R5mPages.ID, engine.R1hPages.ID, engine.R1hPages.ID + 1,
}
