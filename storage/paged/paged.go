package paged

import (
	"crypto/sha256"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// Options sets how rows are packed.
type Options struct {
	// Shared: other processes write and remove pages of the engine, which is on other machines: facts remembered of a segment hold for
	// a version of its window, see Wanted.Version, pages are small enough to be cells, and data pages have keys that nobody has used.
	Shared bool
	// Least is the fewest new series of a batch that are packed; 0: 8.
	Least int
	// IDsBytes is the size of the cache of ids of labels pages, bytes; 0: 4 MiB.
	IDsBytes int64
	// WrittenBytes is the size of the cache of pages that have just been written, bytes; 0: 4 MiB.
	WrittenBytes int64
	// OpenedBytes is the size of the cache of pages that were read for a few series, bytes; 0: 16 MiB.
	OpenedBytes int64
}

// The defaults of Options.
const (
	defaultLeast        = 8
	defaultIDsBytes     = 4 << 20
	defaultWrittenBytes = 4 << 20
	// A panel for one target reads a page of each of its metrics, some hundred of some ten kilobytes, and again when it is refreshed:
	// less room than all of them take would never have the next one.
	defaultOpenedBytes = 16 << 20
)

// sharedDataBytes bounds the values of a data page, and with them the page, where it is a cell of Cassandra's.
const sharedDataBytes = 48 << 10

// levelMemoryBytes is the size of the memory of segments' levels: some ten thousand segments.
const levelMemoryBytes = 2 << 20

// limits bound pages and what readers hold of them. Tests make them small.
type limits struct {
	entries     int // of a page
	bucket      int // series of a metric that a bucket is meant to have at most
	labelsBytes int // values of a labels page
	dataBytes   int // values of a data page
	entryBytes  int // the greatest value that is packed
	batchBytes  int // of pages
	gatherBytes int // pages of a level that a reader holds, but for those of one bucket
	fewest      int // entries of a page: fewer stay rows
	// compactBytes is about how many bytes of rows Compact replaces at once: writers wait meanwhile.
	compactBytes int
	// filtered is how many new series a write has of a partition, at least, for the filters of its labels pages to have bits.
	filtered int
	// together is how many rows of each of several partitions are read together; one that has more is read by itself. Six series have 504 rollups of
	// 5m in a week.
	together int
	// compactRows is after how many rows that it has read Compact lets writers go on, where it replaces fewer bytes.
	compactRows int
}

func defaultLimits() limits {
	return limits{
		entries: page.MaxEntries, bucket: 256, labelsBytes: 48 << 10, dataBytes: 256 << 10, entryBytes: 8 << 10,
		batchBytes: engine.MaxBatch, gatherBytes: 128 << 10, fewest: 4, filtered: 1000, compactBytes: 256 << 10, compactRows: 4 << 10, together: 512,
	}
}

// Rows writes and reads the rows of an engine, those in pages included. It may be used from many goroutines at once. Pages of an
// engine are all written through one, unless Options.Shared: see levelMemory.
type Rows struct {
	eng engine.Engine
	// gatherer is the engine, if it scans several partitions for less than one by one.
	gatherer engine.SeveralScanner
	o        Options
	limits   limits
	ids      *lru[labelsKey, ids]
	// written and opened are pages of chunks, by their versions.
	written, opened *lru[labelsKey, *openPage]
	levels          *levelMemory
	long            *longWindows
	// rollups is held by writers of rollups, and by Compact while it reads and writes a piece: nothing may come between.
	rollups *sync.RWMutex
	facts   *factMemory
}

// New returns the rows of an engine, whose Close stays the caller's.
func New(eng engine.Engine, o Options) *Rows {
	if o.Least == 0 {
		o.Least = defaultLeast
	}
	if o.IDsBytes == 0 {
		o.IDsBytes = defaultIDsBytes
	}
	if o.WrittenBytes == 0 {
		o.WrittenBytes = defaultWrittenBytes
	}
	if o.OpenedBytes == 0 {
		o.OpenedBytes = defaultOpenedBytes
	}
	versions, _ := engine.As[engine.Versioned](eng)
	gatherer, _ := engine.As[engine.SeveralScanner](eng)
	r := &Rows{
		eng: eng, gatherer: gatherer, o: o, limits: defaultLimits(),
		ids:     newLRU[labelsKey, ids](o.IDsBytes),
		written: newLRU[labelsKey, *openPage](o.WrittenBytes), opened: newLRU[labelsKey, *openPage](o.OpenedBytes),
		levels: &levelMemory{of: newLRU[string, *levels](levelMemoryBytes)},
		long:   newLongWindows(), rollups: new(sync.RWMutex),
		facts: &factMemory{versions: versions, of: newLRU[factKey, *fact](factMemoryBytes)},
	}
	if o.Shared {
		r.limits.dataBytes = sharedDataBytes
	}
	return r
}

// tables is a table of rows with the table of its pages.
type tables struct {
	rows, pages *engine.Table
	// series and start are fields of the clustering key of rows; bits, first and pageStart of that of pages.
	series, start          int
	bits, first, pageStart int
	// segment is how many fields the keys of a segment's rows, and of their pages, have in common, see segment.go.
	segment int
	data    page.Kind // of pages of format.KindChunk
}

var (
	rawTables = tables{rows: engine.Raw, pages: engine.RawPages, start: 1, series: 2, pageStart: 1, bits: 2, first: 3, segment: 2, data: page.Chunks}
	r5mTables = rollupTables(engine.R5m, engine.R5mPages)
	r1hTables = rollupTables(engine.R1h, engine.R1hPages)
)

func rollupTables(rows, pages *engine.Table) tables {
	return tables{rows: rows, pages: pages, series: 1, start: 2, bits: 1, first: 2, pageStart: 3, segment: 1, data: page.Rollups}
}

// tablesOf returns the tables that belong to a table of rows; nil: its rows are never in pages.
func tablesOf(t *engine.Table) *tables {
	switch t {
	case engine.Raw:
		return &rawTables
	case engine.R5m:
		return &r5mTables
	case engine.R1h:
		return &r1hTables
	}
	return nil
}

// pagesOf returns the tables that belong to a table of pages; nil: it isn't one.
func pagesOf(t *engine.Table) *tables {
	switch t {
	case engine.RawPages:
		return &rawTables
	case engine.R5mPages:
		return &r5mTables
	case engine.R1hPages:
		return &r1hTables
	}
	return nil
}

func (t *tables) isRaw() bool { return t.rows == engine.Raw }

// pageVersion is the last field of the clustering key of pages.
const pageVersion = 4

// pageKey returns the clustering key of a page.
func (t *tables) pageKey(kind, start int64, bits int, first, version string) engine.Key {
	key := make(engine.Key, pageVersion+1)
	key[0] = engine.Int(kind)
	key[t.pageStart] = engine.Int(start)
	key[t.bits] = engine.Int(int64(bits))
	key[t.first] = engine.Text(first)
	key[pageVersion] = engine.Text(version)
	return key
}

// kindOf returns the kind of pages of a kind of rows.
func (t *tables) kindOf(kind int64) page.Kind {
	if kind == format.KindLabels {
		return page.Labels
	}
	return t.data
}

// latest returns the greatest timestamp that chunks of a start may have in a page, microseconds: sealed rows have the end of their slot, and
// up to 18 minutes more as their version grows. What removes pages has it, for the timestamps of rows aren't readable.
func latest(start int64) int64 { return (start+format.DayMS)*1000 + 1<<30 }

// hashOf returns the version of a page or a chunk: the beginning of its hash.
func hashOf(value []byte) [engine.IDLen]byte {
	sum := sha256.Sum256(value)
	return [engine.IDLen]byte(sum[:engine.IDLen])
}

// saltedVersionOf returns the version of a page that has a key which nobody else uses, unless salt is nil.
func saltedVersionOf(value, salt []byte) string {
	if salt == nil {
		return versionOf(value)
	}
	h := sha256.New()
	_, _ = h.Write(salt)
	_, _ = h.Write(value)
	return string(h.Sum(nil)[:engine.IDLen])
}

// nextVersionOf returns the version of a page that takes the place of one with another version. Unless salt is nil, it is that version plus up to
// 2^96, so that the key follows: a scan that fetches pages in parts, and passes the place of the new page before that is written, finds the old one
// later, or there. "": there is none that follows.
func nextVersionOf(version string, value, salt []byte) string {
	if salt == nil {
		return versionOf(value)
	}
	step := saltedVersionOf(value, salt)
	next, carry := []byte(version), 1
	for i := len(next) - 1; i >= 0; i-- {
		sum := int(next[i]) + carry
		if i >= len(next)-nextVersionBytes {
			sum += int(step[i])
		}
		next[i], carry = byte(sum), sum>>8
	}
	if carry > 0 {
		return ""
	}
	return string(next)
}

// nextVersionBytes is how many bytes of versions differ by chance between pages that take each other's place.
const nextVersionBytes = 12

func versionOf(value []byte) string {
	sum := hashOf(value)
	return string(sum[:])
}
