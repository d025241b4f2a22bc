// Package page keeps the values of up to MaxEntries rows that resemble each other, such as the chunks that a metric's new
// series have in one slot, in one value: a page. It is pure: no clock, no engine.
//
//	            cut                          columns
//	value 0 ──► fields ─┐   field 0: of value 0, of value 1, … ──┐
//	value 1 ──► fields ─┼─► field 1: of value 0, of value 1, … ──┼─► page
//	…                   │   …                                    │
//	value n ────────────┘   values that can't be cut ────────────┘
//
// Each value is cut into fields, numbers and texts, by the package that defines its format; each field becomes a column over
// all entries; and a value is joined of its fields again, with checksums computed anew. A value whose fields don't give the
// same bytes, or that isn't of the page's kind, stands whole in a column of such. So any values come back byte for byte.
//
// Fields that are equal in all entries take a few bytes per page, or none where they are zero. Columns are made for an engine
// that compresses pages again, by zstd, several in a block: random bytes are packed as close as it goes, and bytes that may repeat
// in other pages stay whole bytes. Pages of metrics of the same targets repeat each other best if their entries stand
// in the order of their labels.
//
//	page.go, parse.go      the page, and access to one value
//	cuttings.go            what the values of each kind are cut into
//	composer.go            columns of all fields
//	numbers.go             columns of numbers
//	texts.go, packed.go    columns of texts
//	times.go               when the samples of an entry were taken
//	positions.go           where the series of entries stand in a labels page
//	filter.go              filters of labels pages, each a value of its own
//	selector.go, match.go  which entries of a labels page match, column by column
package page
