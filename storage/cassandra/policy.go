package cassandra

import (
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// policy is how Cassandra keeps a table.
type policy struct {
	// about is what the table holds, in the words of its comment.
	about string
	// compaction determines when files are merged.
	compaction strategy
	// compressor packs chunks of 64 KiB before they reach the disk. It is what makes small pieces of
	// neighbouring series small together; the price is that a single row costs a chunk to read.
	compressor string
	// graceSeconds is how long a delete is remembered, gc_grace_seconds. Replicas that miss a delete for
	// longer may bring the row back, and a hint older than that isn't delivered.
	graceSeconds int
	// firstPage is how many rows a scan asks for before it has seen any; maxPage is the most it asks for
	// when they turn out small. See pageSize.
	firstPage, maxPage int
}

// strategy names a way of compaction.
type strategy int

const (
	// windowed keeps files of one span of data's time apart and merges within it, so that files expire
	// whole: TimeWindowCompactionStrategy. It goes by write timestamps, which the store sets to the
	// data's time, so that late data and data sealed late still go with their own time.
	windowed strategy = iota + 1
	// leveled keeps each row in about one file: LeveledCompactionStrategy.
	leveled
	// tiered merges files of like size: SizeTieredCompactionStrategy.
	tiered
)

const (
	// hourGrace is for rows that come back harmlessly: a stage blob that is known to be sealed is deleted
	// once more, and not read (see storage/worked_off.go). It is short, for a remembered delete is something
	// that reads pass over.
	hourGrace = 3600
	// dayGrace is for rows that only expire, alike on every replica, so nothing is there to come back.
	// It must only outlast hints: Cassandra keeps those for 3 hours, some operators for longer.
	dayGrace = 24 * 3600
	// longGrace is Cassandra's default: ten days, within which the keyspace should be repaired.
	longGrace = 10 * 24 * 3600
)

const (
	zstd = "'class': 'ZstdCompressor', 'chunk_length_in_kb': 64, 'compression_level': 3"
	// lz4 costs little CPU, for rows that live for hours.
	lz4 = "'class': 'LZ4Compressor', 'chunk_length_in_kb': 64"
)

// policies has every table's, by its name.
//
// Stage is a queue: written once, read once or twice, deleted after hours by other writes.
// Windows don't suit them: a delete lies in a later window than what it deletes and would never meet it
// (and all their timestamps are the same). Levels rewrite a row many times within its short life. Tiers
// rewrite it a few times, put a delete and its row together as soon as their files are merged, and drop
// both an hour later.
var policies = map[string]policy{
	"stage": {
		about: "samples not yet sealed, as blobs", compaction: tiered, compressor: lz4,
		graceSeconds: hourGrace, firstPage: 8, maxPage: 64,
	},
	"staged": {
		about: "which slots have blobs, by units of slots", compaction: leveled, compressor: lz4,
		graceSeconds: hourGrace, firstPage: 1000, maxPage: 5000,
	},
	"sealed": {
		about: "commit records: one row per seal", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 1000, maxPage: 5000,
	},
	"raw": {
		about: "labels (kind 0) and chunks (kind 1) of series", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 500, maxPage: 2000,
	},
	"r5m": {
		about: "labels (kind 0) and 5m rollups (kind 1) of series", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 500, maxPage: 2000,
	},
	"r1h": {
		about: "labels (kind 0) and 1h rollups (kind 1) of series", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 500, maxPage: 2000,
	},
	"raw_pages": {
		about: "labels (kind 0), chunks (kind 1), and filters of labels (kind 9), of many series", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 16, maxPage: 1000,
	},
	"r5m_pages": {
		about: "labels (kind 0), 5m rollups (kind 1), and filters of labels (kind 9), of many series", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 16, maxPage: 1000,
	},
	"r1h_pages": {
		about: "labels (kind 0), 1h rollups (kind 1), and filters of labels (kind 9), of many series", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 16, maxPage: 1000,
	},
	"catalog": {
		about: "names of metrics and labels, values of labels", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 2000, maxPage: 5000,
	},
	"metadata": {
		about: "types, units and help texts of metrics", compaction: windowed, compressor: zstd,
		graceSeconds: dayGrace, firstPage: 500, maxPage: 2000,
	},
	"store": {
		about: "format and periods, by compare-and-set", compaction: leveled, compressor: lz4,
		graceSeconds: longGrace, firstPage: 10, maxPage: 1000,
	},
	"windows": {
		about: "the windows in which a tenant has rows", compaction: leveled, compressor: lz4,
		graceSeconds: longGrace, firstPage: 1000, maxPage: 5000,
	},
	"tenants": {
		about: "the tenants that have rows", compaction: leveled, compressor: lz4,
		graceSeconds: longGrace, firstPage: 1000, maxPage: 5000,
	},
	"lease": {
		about: "leases: which process seals which partition, by compare-and-set", compaction: leveled, compressor: lz4,
		graceSeconds: longGrace, firstPage: 100, maxPage: 1000,
	},
	"defined": {
		about: "series that sealed blobs defined", compaction: tiered, compressor: lz4,
		graceSeconds: hourGrace, firstPage: 8, maxPage: 64,
	},
	"tails": {
		about: "stream positions of writers", compaction: leveled, compressor: lz4,
		graceSeconds: hourGrace, firstPage: 1000, maxPage: 5000,
	},
	"processes": {
		about: "the processes that write", compaction: leveled, compressor: lz4,
		graceSeconds: hourGrace, firstPage: 100, maxPage: 1000,
	},
	"delete": {
		about: "deletes that aren't cleaned yet", compaction: leveled, compressor: lz4,
		graceSeconds: longGrace, firstPage: 100, maxPage: 1000,
	},
	"shards": {
		about: "metrics with several shards", compaction: leveled, compressor: lz4,
		graceSeconds: longGrace, firstPage: 1000, maxPage: 5000,
	},
	"held": {
		about: "samples of replicas that aren't elected", compaction: tiered, compressor: lz4,
		graceSeconds: hourGrace, firstPage: 8, maxPage: 64,
	},
	"chosen": {
		about: "which replica of a cluster is elected, by compare-and-set", compaction: leveled, compressor: lz4,
		graceSeconds: longGrace, firstPage: 100, maxPage: 1000,
	},
}

// policyOf returns a table's policy; one that isn't listed is kept in a way that is never wrong.
func policyOf(t *engine.Table) policy {
	if p, ok := policies[t.Name]; ok {
		return p
	}
	return policy{about: t.Name, compaction: leveled, compressor: zstd, graceSeconds: longGrace, firstPage: 100, maxPage: 1000}
}

const (
	// windowsKept is about how many windows a table's files are kept in. More would make many small
	// files, fewer would keep the expired longer.
	windowsKept = 30
	// foreverWindow is the width where nothing expires.
	foreverWindow = 30 * 24 * time.Hour
)

// windowWidth is how much time a window of files spans: whole hours below two days, whole days above.
func windowWidth(retention time.Duration) time.Duration {
	if retention <= 0 {
		return foreverWindow
	}
	width := retention / windowsKept
	unit := time.Hour
	if width > 48*time.Hour {
		unit = 24 * time.Hour
	}
	return max(unit, (width+unit-1)/unit*unit)
}

// options is a strategy as CQL has it.
func (s strategy) options(retention time.Duration) string {
	switch s {
	case windowed:
		size, unit := int64(windowWidth(retention)/time.Hour), "HOURS"
		if size%24 == 0 {
			size, unit = size/24, "DAYS"
		}
		return fmt.Sprintf("'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '%d', 'compaction_window_unit': '%s'", size, unit)
	case tiered:
		// A file most of which are deletes that may go is rewritten alone, whatever other files hold.
		return "'class': 'SizeTieredCompactionStrategy', 'tombstone_compaction_interval': '3600', 'unchecked_tombstone_compaction': 'true'"
	default:
		return "'class': 'LeveledCompactionStrategy'"
	}
}

// retentionOf is how long a table keeps its rows; 0: for ever. Tables with rows of windows of all resolutions keep some of them as long as the 1h
// rollups, which are kept the longest.
func (o *Options) retentionOf(t *engine.Table) time.Duration {
	switch t {
	case engine.R5m, engine.R5mPages:
		return o.Retention5m
	case engine.R1h, engine.R1hPages, engine.Sealed, engine.Catalog:
		return o.Retention1h
	default:
		return o.Retention
	}
}
