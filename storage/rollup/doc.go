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
// packages query and promql compute answers from them. A caller may assume that equal samples give equal buckets and
// equal bytes, and that Decode returns ErrCorrupt for a chunk with a wrong checksum. The chunk format is stored: a
// change needs a new format number, and a change to the fields in fields.go also a new version of pages.
//
// A bucket is left-open and right-closed, like PromQL's ranges. It contains the first and the last sample with their
// timestamps, and the correction for counter resets between them. The rate over consecutive buckets is therefore
// computed like the rate over their samples. Except for counters, a bucket also contains the second central moment of
// its values (moment.go) and their comoment with time (line.go).
package rollup
