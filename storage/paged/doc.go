// Package paged keeps rows of series that are new in a window in pages: bundles of rows of neighbouring series, which take far
// less room than the rows by themselves. It lies between the store and its engine, and everything above it goes on seeing rows.
//
//	store ── Write: rows ──► Rows ─┬─ rows of series that were there before ─► raw, r5m, r1h
//	                               └─ rows of new series: pages ────────────► raw_pages, r5m_pages, r1h_pages
//
//	store ◄─ Scan: rows ─── Rows ◄── pages, and after them rows, merged in the order of their keys
//
// # Pages
//
// A series is new where its labels row is written along with its chunks. A labels page has the labels of up to page.MaxEntries
// series whose ids begin with the same bits, the page's bucket. Their ids aren't stored: an id is the hash of the metric's name
// and the labels. A data page has the chunks that series of one labels page have of one start, and refers to them by their
// positions in it. A labels page and the data pages that refer to it are one atomic batch, so that none is ever without the other.
//
//	labels page, version v            data page of start s
//	┌───┬────────────────────┐        ┌───────────────────┐
//	│ 0 │ labels ─► id of a  │        │ labels page: v    │
//	│ 1 │ labels ─► id of b  │ ◄───── │ positions: 0, 2   │
//	│ 2 │ labels ─► id of c  │        │ chunks of a and c │
//	└───┴────────────────────┘        └───────────────────┘
//
// The version of a page is the hash of its value, so a page never changes. The version of a raw chunk is the hash of the chunk
// likewise, and isn't stored. Where several processes write pages, the hash of a data page is that of random bytes and its value: a key
// from which a page was removed may stay deleted for days there, whatever is written under it.
//
// # Levels
//
// How many bits the ids of a bucket share is the page's level. It is chosen in each write so that about 128 to 256 series
// of the metric would be in a bucket; a partition may have pages of several levels. Readers go through all levels at once, from
// bucket to bucket, see segment.go. Which levels a segment has is remembered, by one process that has an engine until it writes pages of it, and
// by several for a version of the window, see levels.go.
//
// # Filters
//
// Each labels page has a filter: which labels its series may have. Candidates reads the filters of a partition and has those pages opened that may
// have series which a selector matches, so that a few of a million are found without reading the labels of all:
//
//	selector ─► Candidates: filters ─► Rows: labels pages that may match, and rows ─► ids, Located ─► Chunks: data pages that have some of them
//
// Located is where these series stand in labels pages. With it, Chunks needs no ids of the others, and opens no data page without any. See
// filters.go for when filters are there, and what a reader does where they aren't.
//
// # Rows outdo entries
//
// A row may be written again: a raw chunk without the samples that were deleted, rollups with a higher version. Pages aren't
// touched by that: of a row and an entry with the same key, readers take the one of the higher rank. A rollup made anew is in a page
// itself where its series' labels were written again: then entries outdo each other. Outdone returns how to remove the entries that are
// outdone. Whoever cleans writes the rows first, copies of better entries among them, and removes the entries afterwards; readers read
// pages first and rows afterwards. So a reader that misses the entry has the row before it.
package paged
