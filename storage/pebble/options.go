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

// FS is the file system that an engine's files are on.
type FS = vfs.FS

// Options configure an Engine. Together CacheBytes and MemTables+1 times MemTableBytes bound its memory.
type Options struct {
	// CacheBytes is the size of the cache of decompressed blocks. Default 256 MiB.
	CacheBytes int64
	// MemTableBytes is how much is collected in memory before it is written as a sorted file. Large ones
	// save rewriting, take memory and make the log that is replayed at start-up longer: design/memory.md. Default 16 MiB.
	MemTableBytes int64
	// MemTables is how many of them may wait to be written, the one being filled included; beyond that
	// writes wait. At least 2. Default 3.
	MemTables int
	// MaxOpenFiles bounds the open files. Default 1000.
	MaxOpenFiles int
	// BlockBytes is the size of a block before compression: the unit that is read, decompressed and
	// cached. Large blocks compress better, small ones make single rows cheaper. Default 64 KiB.
	BlockBytes int
	// ZstdLevel is how hard blocks are compressed: 1 to 19. The stage's rows, which live for hours only,
	// are compressed by something faster. Default 3.
	ZstdLevel int
	// IngestBytes is from how many bytes of sealed rows on a Write makes sorted files of them at once: see design/sealing.md. Default 512 KiB.
	IngestBytes int
	// Compactions is how many compactions may run at once. Default: half of the CPUs, at least 1.
	Compactions int
	// ReserveBytes is how much of the disk must be free for a write to be taken; below it Write returns
	// engine.ErrUnavailable, and deletes go on. Writes of engine.MakingRoom need an eighth of it. Pebble can't go on after its log has hit the end of the
	// disk, and compactions, which give space back, need some themselves. 0: no reserve. Default 512 MiB.
	ReserveBytes uint64
	// DropDelay is about how long the space of dropped or deleted rows waits to be given back. Short
	// delays cost compactions. Default 2 minutes.
	DropDelay time.Duration
	// StageDelay is how long no more of the stage is deleted before its slots are given back that hold nothing more; while more
	// and more is deleted they wait 15 times as long. Short delays cost flushes. Default 2 seconds.
	StageDelay time.Duration
	// ReadOnly opens the directory for reading only: no file is made, changed or removed, and whatever would write returns
	// engine.ErrReadOnly. The log is replayed into memory at each open. Default false.
	ReadOnly bool
	// MustExist makes no new engine: where there is none Open returns ErrNoData. Default false.
	MustExist bool
	// Admit, if set, is called with what Engine.DescribeStore was called with last, before anything is written. If it returns an
	// error, so does Open, and the directory is unchanged.
	Admit func(description []byte) error
	// FS is where the files are; nil: the operating system's. Tests give a CrashableFS.
	FS FS
	// Logger gets events for operators.
	Logger *slog.Logger
	// Waiting, if set, makes Open wait where it lacks space, inodes, file handles or rights, and try again until that has ended or
	// its context ends. It is called with the error each time, and with nil when Open goes on. If it isn't set, Open returns the error.
	Waiting func(error)
	// OnFatal, if set, is called once when the engine takes no more writes until the process starts anew,
	// and why. Reading still works; the process should end in an orderly way. It mustn't call the engine.
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

// pebbleOptions translates o for Pebble.
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
		// Pebble compacts level 0 when files lie over each other half as many times. A slot of half a million series makes one such
		// layer: its window is written anew after six slots then, not after each. A burst of sealing must not stop writes.
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

// compression is zstd for the rows, and what Pebble finds fastest for its indexes. A block that shrinks by
// less than a twentieth is kept as it is.
func (o *Options) compression() *sstable.CompressionProfile {
	p := *sstable.ZstdCompression
	p.Name = fmt.Sprintf("cassia-zstd%d", o.ZstdLevel)
	p.DataBlocks.Level = uint8(o.ZstdLevel)
	p.ValueBlocks = p.DataBlocks
	p.OtherBlocks = sstable.FastestCompression.OtherBlocks
	p.MinReductionPercent = 5
	return &p
}

// spanPolicy compresses the stage fast. It also keeps it in files of its own, so that
// files full of deleted blobs go as a whole, and the tables of sealed rows, so that files which hold rows of one day or
// metric in each don't seem to overlap all that lies between.
func spanPolicy(start []byte) (pebbledb.SpanPolicy, []byte, error) {
	for _, end := range spanEnds {
		if len(start) == 0 || start[0] < end {
			fast := len(start) > 0 && start[0] == engine.Stage.ID
			return pebbledb.SpanPolicy{PreferFastCompression: fast}, []byte{end}, nil
		}
	}
	return pebbledb.SpanPolicy{}, nil, nil
}

// spanEnds are the first bytes of keys before which a file ends.
var spanEnds = []byte{engine.Stage.ID, engine.Stage.ID + 1, engine.Raw.ID, engine.R5m.ID, engine.R1h.ID, engine.R1h.ID + 1,
	engine.RawPages.ID, engine.R5mPages.ID, engine.R1hPages.ID, engine.R1hPages.ID + 1}
