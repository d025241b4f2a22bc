// Package page encodes the values of up to MaxEntries similar rows, such as the chunks of a metric's new series in one
// slot, as one value: a page. Package paged calls it to write and read pages, package query to match series in labels
// pages, and package inspect to describe pages. It uses no clock and no engine.
//
//	            cut                          columns
//	value 0 ──► fields ─┐   field 0: of value 0, of value 1, … ──┐
//	value 1 ──► fields ─┼─► field 1: of value 0, of value 1, … ──┼─► page
//	…                   │   …                                    │
//	value n ────────────┘   values that can't be cut ────────────┘
//
// Each value is cut into fields, numbers and texts, by the package that defines its format. Each field becomes a column
// over all entries. To read a value, its fields are joined, and its checksums are recomputed. A value whose fields
// don't give the same bytes, or that isn't of the page's kind, is stored as a whole in a separate column. So any value
// is returned byte for byte.
//
// A field that is equal in all entries takes a few bytes per page, or none if it is zero. Columns are designed for an
// engine that compresses multiple pages in a block with zstd: random bytes are packed as densely as possible, and bytes
// that may repeat in other pages stay whole bytes. Pages of metrics of the same targets repeat each other best if their
// entries are sorted by their labels.
//
// The encodings are part of the stored format and are covered by golden files: if one changes, existing stores become
// unreadable. Parse may be called with any bytes, and returns an error if they aren't a valid page. A parsed page may
// be read concurrently.
//
//	page.go, parse.go      the page, and access to one value
//	cuttings.go            how the values of each kind are cut
//	composer.go            columns of all fields
//	numbers.go             columns of numbers
//	texts.go, packed.go    columns of texts
//	times.go               the times of an entry's samples
//	positions.go           the positions of the entries' series in a labels page
//	filter.go              filters of labels pages, each a separate value
//	selector.go, match.go  the matching entries of a labels page, by column
package page
