package cassandra

import (
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// policy has the options with which Cassandra stores a table.
type policy struct {
	// about is the description of the table in its comment.
	about string
	// compaction determines when files are merged.
	compaction strategy
	// compressor compresses chunks of 64 KiB. Large chunks compress small values of neighboring series together; in
	// return, reading a single row decompresses a whole chunk.
	compressor string
	// graceSeconds is gc_grace_seconds: the time for which a tombstone is kept. A replica that misses a delete for
	// longer may bring the row back, and hints older than this aren't delivered.
	graceSeconds int
	// firstPage is the number of rows in the first page of a scan, when their size is unknown. maxPage is the max
	// number of rows if they are small. See pageSize.
	firstPage, maxPage int
}

// strategy is a compaction strategy.
type strategy int

const (
	// windowed groups files by the time of the data and merges within a group, so that whole files expire:
	// TimeWindowCompactionStrategy. Cassandra groups by write timestamps, which the store sets to the data's time, so
	// that late samples and samples that are sealed late are grouped by their own time.
	windowed strategy = iota + 1
	// leveled keeps each row in about one file: LeveledCompactionStrategy.
	leveled
	// tiered merges files of similar size: SizeTieredCompactionStrategy.
	tiered
)

const (
	// hourGrace is for rows that can reappear without harm: a staged blob that is recorded as sealed is deleted again
	// and not read (see storage/sealed_runs.go). It is short because reads have to skip tombstones.
	hourGrace = 3600
	// dayGrace is for rows that only expire, at the same time on every replica, so that they can't reappear. It must be
	// longer than the time for which hints are kept: 3 hours by default, longer in some clusters.
	dayGrace = 24 * 3600
	// longGrace is Cassandra's default: ten days, within which the keyspace should be repaired.
	longGrace = 10 * 24 * 3600
)

const (
	zstd = "'class': 'ZstdCompressor', 'chunk_length_in_kb': 64, 'compression_level': 3"
	// lz4 uses little CPU. It is for rows that exist for hours.
	lz4 = "'class': 'LZ4Compressor', 'chunk_length_in_kb': 64"
)

// policies are the policies by table name.
//
// Table stage is a queue: rows are written once, read once or twice, and deleted hours later. Windowed compaction
// doesn't suit it: a delete would be in a later window than its row and would never be merged with the row (and all
// timestamps are the same). Leveled compaction rewrites a row many times in its short lifetime. Tiered compaction
// rewrites it a few times, merges a delete with its row as soon as their files are merged, and drops both an hour
// later.
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
		about: "labels (kind 0), chunks (kind 1), and filters of labels (kind 9), of many series", compaction: windowed,
		compressor: zstd, graceSeconds: dayGrace, firstPage: 16, maxPage: 1000,
	},
	"r5m_pages": {
		about:      "labels (kind 0), 5m rollups (kind 1), and filters of labels (kind 9), of many series",
		compaction: windowed, compressor: zstd, graceSeconds: dayGrace, firstPage: 16, maxPage: 1000,
	},
	"r1h_pages": {
		about:      "labels (kind 0), 1h rollups (kind 1), and filters of labels (kind 9), of many series",
		compaction: windowed, compressor: zstd, graceSeconds: dayGrace, firstPage: 16, maxPage: 1000,
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

// policyOf returns a table's policy. Tables without a policy get safe options.
func policyOf(t *engine.Table) policy {
	if p, ok := policies[t.Name]; ok {
		return p
	}
	return policy{
		about: t.Name, compaction: leveled, compressor: zstd, graceSeconds: longGrace, firstPage: 100, maxPage: 1000,
	}
}

const (
	// windowsKept is the approximate number of windows of a table's files. With more windows there would be many small
	// files; with fewer, expired rows would be kept longer.
	windowsKept = 30
	// foreverWindow is the width of windows if nothing expires.
	foreverWindow = 30 * 24 * time.Hour
)

// windowWidth returns the time span of a window of files: whole hours below two days, whole days above.
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

// options returns the CQL of a strategy.
func (s strategy) options(retention time.Duration) string {
	switch s {
	case windowed:
		size, unit := int64(windowWidth(retention)/time.Hour), "HOURS"
		if size%24 == 0 {
			size, unit = size/24, "DAYS"
		}
		return fmt.Sprintf(
			"'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '%d', 'compaction_window_unit': '%s'",
			size, unit,
		)
	case tiered:
		// A file that consists mainly of droppable tombstones is rewritten alone, even if its rows may be in other
		// files.
		return "'class': 'SizeTieredCompactionStrategy', 'tombstone_compaction_interval': '3600', " +
			"'unchecked_tombstone_compaction': 'true'"
	default:
		return "'class': 'LeveledCompactionStrategy'"
	}
}

// retentionOf returns the retention of a table's rows. 0 means forever. Tables with rows for windows of all resolutions
// keep some rows as long as the 1h rollups, which have the longest retention.
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
