// Package rollup computes and encodes rollups: buckets of 5 minutes and of 1 hour with the aggregates that PromQL's
// range functions need, so that queries over long ranges don't read samples. It is pure: it uses neither a clock nor an
// engine.
//
//	samples of a slot ──► AppendEvery ──► 5m buckets ──► Coarsen ──► 1h buckets
//	                                          │                         │
//	                                      AppendChunk               AppendChunk      one chunk per series and
//	                                          ▼                         ▼            slot, or series and day
//	                                       Decode, with the columns that a query needs
//
// Package storage builds and merges the buckets when it seals a slot, package page cuts their chunks into pages, and
// packages query and promql compute answers from them. Package expand makes samples from buckets again. A caller may
// assume that equal samples give equal buckets and equal bytes, and that Decode returns ErrCorrupt for a chunk with a
// wrong checksum. The chunk format is stored: a change needs a new format number, and a change to the fields in
// fields.go also a new version of pages.
//
// A bucket is left-open and right-closed, like PromQL's ranges. It contains the first and the last sample with their
// timestamps, and the correction for counter resets between them. The rate over consecutive buckets is therefore
// computed like the rate over their samples. Except for counters, a bucket also contains the second central moment of
// its values (moment.go) and their comoment with time (line.go).
//
// # Adding a column
//
// A new aggregate is a column of Buckets. Unless noted otherwise, a test fails and names what is missing:
//
//   - The column of Buckets: the field, its bit in Columns, and Slice, Equal and KeepRange in buckets.go; add and Reset
//     in build.go; AppendRange and Delete in merge.go; liveBuckets in promql/bucketfn.
//   - Its values: floats.go and histograms.go compute it from samples, and coarsen.go from finer buckets. No test fails
//     if aggregate.go doesn't set it for imported aggregates, or if expand/pieces.go doesn't make the pieces of a cut
//     bucket add up to it.
//   - The stored column: its number in chunk.go, encode.go in the order of the numbers, decode.go, and columnsOf,
//     prefixed and uncut in fields.go. Also a bucket with the column in goldenBuckets, and a line in
//     storage/FORMAT.md. No test checks that line.
//   - Stored rows. Chunks that were written without the column are decoded to the value for an absent one, and check
//     reports them, because it compares bytes. The number of fields of a page changes, so old pages become unreadable
//     unless package page gets a new version.
//   - Reading it: expand.CutColumns, and a function in promql/bucketfn or a suffix in promql/rollup_names.go. The
//     tests' bucketText and onlyColumns, and pruneColumns in bucketfntest.
package rollup
