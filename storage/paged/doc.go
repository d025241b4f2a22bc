// Package paged stores the rows of series that are new in a window in pages: bundles of rows of series with neighboring
// ids, which use far less space than separate rows. Package storage writes and reads rows through it, and it passes
// them to the engine. A caller may assume that Scan and Chunks return what Write wrote as rows, in the order of their
// keys, and that a damaged page is reported as engine.ErrCorrupt and never returned as rows. The caller must remove
// entries only as described in section "Rows supersede entries", or a concurrent reader would miss them.
//
//	store ── Write: rows ──► Rows ─┬─ rows of existing series ───► raw, r5m, r1h
//	                               └─ rows of new series: pages ─► raw_pages, r5m_pages, r1h_pages
//
//	store ◄─ Scan: rows ─── Rows ◄── pages, and after them rows, merged in the order of their keys
//
// # Pages
//
// A series is new if its labels row is written together with its chunks. A labels page contains the labels of up to
// page.MaxEntries series whose ids share their first bits, the page's bucket. The ids aren't stored: an id is the hash
// of the metric's name and the labels. A data page contains the chunks with one start of series of one labels page, and
// refers to the series by their positions in it. A labels page and the data pages that refer to it are written in one
// atomic batch, so neither is ever present without the other.
//
//	labels page, version v            data page of start s
//	┌───┬────────────────────┐        ┌───────────────────┐
//	│ 0 │ labels ─► id of a  │        │ labels page: v    │
//	│ 1 │ labels ─► id of b  │ ◄───── │ positions: 0, 2   │
//	│ 2 │ labels ─► id of c  │        │ chunks of a and c │
//	└───┴────────────────────┘        └───────────────────┘
//
// The version of a page is the hash of its value, so a page never changes. The version of a raw chunk is also the hash
// of the chunk, and isn't stored. If multiple processes write pages, the hash of a data page also covers random bytes:
// after a page is removed, its key may stay deleted for days in the engine, even if it is written again.
//
// # Levels
//
// The level of a page is the number of bits that the ids of its bucket share. Each write chooses it so that a bucket
// has about 128 to 256 series of the metric; a partition may have pages of multiple levels. Readers process all levels
// together, bucket by bucket, see segment.go. A process that owns its engine caches the levels of a segment until it
// writes pages of the segment. In a shared store, the cached levels are valid for one version of the window, see
// levels.go.
//
// # Filters
//
// Each labels page has a filter, which shows the labels that its series may have. Candidates reads the filters of a
// partition and opens only the pages that may have series matching a selector. A few of a million series are found
// without reading the labels of all:
//
//	selector ─► Candidates: filters ─► Rows: labels pages that may match, and rows ─► ids, Located
//	         ─► Chunks: data pages with entries of these ids
//
// Located contains the positions of these series in labels pages. With it, Chunks doesn't compute the ids of other
// series, and opens only data pages with entries of these series. See filters.go for which pages have filters, and how
// readers handle pages without filters.
//
// # Rows supersede entries
//
// A row may be rewritten: a raw chunk without deleted samples, or rollups with a higher version. That doesn't modify
// pages: of a row and an entry with the same key, readers use the one of higher rank. A recomputed rollup is itself in
// a page if its series' labels were written again. Entries then supersede each other. Outdone returns how to remove
// superseded entries. The cleaning process first writes rows, including copies of the better entries, and then removes
// entries. Readers read pages first and rows afterwards. A reader that misses an entry therefore finds its row.
package paged
