package paged

import (
	"crypto/sha256"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// Options configures Rows.
type Options struct {
	// Shared is set if other processes write and remove pages of the engine, which is on other machines. Cached facts
	// about a segment are then valid for one version of its window, see Wanted.Version, pages are small enough to be
	// Cassandra cells, and data pages have keys that were never used before.
	Shared bool
	// Least is the min number of new series of a batch that are packed. 0 means 8.
	Least int
	// IDsBytes is the size in bytes of the cache that contains the ids of labels pages. 0 means 4 MiB.
	IDsBytes int64
	// WrittenBytes is the size of the cache of recently written pages, in bytes. 0 means 4 MiB.
	WrittenBytes int64
	// OpenedBytes is the size of the cache of pages that were read for a few series, in bytes. 0 means 16 MiB.
	OpenedBytes int64
}

// The defaults of Options.
const (
	defaultLeast        = 8
	defaultIDsBytes     = 4 << 20
	defaultWrittenBytes = 4 << 20
	// A panel for one target reads a page of each of its metrics, about a hundred pages of about ten kilobytes, and
	// reads them again when it is refreshed. A cache smaller than these pages would evict each page before it is read
	// again.
	defaultOpenedBytes = 16 << 20
)

// sharedDataBytes bounds the values of a data page that is stored as a Cassandra cell, and thereby the size of the
// cell.
const sharedDataBytes = 48 << 10

// levelMemoryBytes is the size of the cache of segments' levels, enough for about ten thousand segments.
const levelMemoryBytes = 2 << 20

// limits bound pages and the memory of readers. Tests reduce them.
type limits struct {
	entries     int // max number of entries per page
	bucket      int // intended max number of series of a metric per bucket
	labelsBytes int // max size of the values in a labels page
	dataBytes   int // max size of the values in a data page
	entryBytes  int // max size of a value that is packed
	batchBytes  int // max size of a batch of pages
	gatherBytes int // size of the pages of a level that a reader holds, in addition to one bucket's pages
	fewest      int // min number of entries per page; fewer entries stay rows
	// compactBytes is the approximate size of the rows that Compact replaces at once. Writers wait during each
	// replacement.
	compactBytes int
	// filtered is the min number of new series in a write to a partition for which the filters of its labels pages
	// contain labels.
	filtered int
	// together is the max number of rows per partition when multiple partitions are read together; a partition with
	// more rows is read separately. Six series have 504 5m rollup rows in a week.
	together int
	// compactRows is the number of rows that Compact reads before it lets writers proceed, if it replaces fewer than
	// compactBytes.
	compactRows int
}

func defaultLimits() limits {
	return limits{
		entries: page.MaxEntries, bucket: 256, labelsBytes: 48 << 10, dataBytes: 256 << 10, entryBytes: 8 << 10,
		batchBytes: engine.MaxBatch, gatherBytes: 128 << 10, fewest: 4, filtered: 1000, compactBytes: 256 << 10,
		compactRows: 4 << 10, together: 512,
	}
}

// Rows writes and reads the rows of an engine, including rows in pages. It is safe for concurrent use. All pages of an
// engine must be written through one Rows, unless Options.Shared is set: see levelMemory.
type Rows struct {
	eng engine.Engine
	// gatherer is the engine if it scans multiple partitions together at a lower cost than one by one; otherwise nil.
	gatherer engine.SeveralScanner
	o        Options
	limits   limits
	ids      *lru[labelsKey, ids]
	// written and opened are caches of pages of chunks by version.
	written, opened *lru[labelsKey, *openPage]
	levels          *levelMemory
	long            *longWindows
	// rollups is read-locked by writers of rollups, and locked by Compact while it reads and writes a piece, and by
	// RemoveOutdone.
	rollups *sync.RWMutex
	facts   *factMemory
}

// New returns the rows of an engine. The caller remains responsible for closing the engine.
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

// tables are a table of rows and the table of its pages.
type tables struct {
	rows, pages *engine.Table
	// series and start are indices in the clustering key of rows; bits, first and pageStart are indices in the key of
	// pages.
	series, start          int
	bits, first, pageStart int
	// segment is the number of key fields that the rows of a segment and their pages share, see segment.go.
	segment int
	data    page.Kind // kind of the pages of format.KindChunk
}

var (
	rawTables = tables{
		rows: engine.Raw, pages: engine.RawPages, start: 1, series: 2, pageStart: 1, bits: 2, first: 3, segment: 2,
		data: page.Chunks,
	}
	r5mTables = rollupTables(engine.R5m, engine.R5mPages)
	r1hTables = rollupTables(engine.R1h, engine.R1hPages)
)

func rollupTables(rows, pages *engine.Table) tables {
	return tables{
		rows: rows, pages: pages, series: 1, start: 2, bits: 1, first: 2, pageStart: 3, segment: 1, data: page.Rollups,
	}
}

// tablesOf returns the tables of a table of rows, or nil if its rows are never in pages.
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

// pagesOf returns the tables of a table of pages, or nil for other tables.
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

// kindOf returns the page kind of a kind of rows.
func (t *tables) kindOf(kind int64) page.Kind {
	if kind == format.KindLabels {
		return page.Labels
	}
	return t.data
}

// maxTimestamp returns the max timestamp, in microseconds, of chunks with this start in a page. Sealed rows have the
// end of their slot as timestamp, plus up to 18 minutes depending on their version. A page is deleted with this
// timestamp, because the timestamps of rows aren't readable.
func maxTimestamp(start int64) int64 { return (start+format.DayMS)*1000 + 1<<30 }

// hashOf returns the version of a page or a chunk: the first bytes of its hash.
func hashOf(value []byte) [engine.IDLen]byte {
	sum := sha256.Sum256(value)
	return [engine.IDLen]byte(sum[:engine.IDLen])
}

// saltedVersionOf returns the version of a page. Unless salt is nil, the page's key is unique.
func saltedVersionOf(value, salt []byte) string {
	if salt == nil {
		return versionOf(value)
	}
	h := sha256.New()
	_, _ = h.Write(salt)
	_, _ = h.Write(value)
	return string(h.Sum(nil)[:engine.IDLen])
}

// nextVersionOf returns the version of a page that replaces a page with another version, or "" if there is no such
// version. Unless salt is nil, the new version is the old version plus a number up to 2^96, so that the new key sorts
// after the old key. A scan that fetches pages in parts, and passes the new key before the new page is written, has
// then already read the old page.
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

// nextVersionBytes is the number of random bytes in which the version of a page differs from that of the page it
// replaces.
const nextVersionBytes = 12

func versionOf(value []byte) string {
	sum := hashOf(value)
	return string(sum[:])
}
