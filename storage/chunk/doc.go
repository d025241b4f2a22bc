// Package chunk holds the samples of one series: in memory as columns, and encoded as a sealed chunk. Sealing, queries
// and imports encode and decode chunks with it. It does no I/O; see FORMAT.md for the rows that contain chunks.
//
//	      AppendFloat, AppendHistogram                AppendChunk
//	wire ────────────────────────────► Samples ──────────────────────► bytes of a raw row
//	                                   │ T  V  ST │                        │
//	                                   │ H        │ ◄──────────────────────┘
//	                                   └──────────┘          Decode
//	                                     Normalize, Clip, Covers
//
// Samples are collected in any order. Normalize sorts them, and of two samples with the same timestamp it keeps one,
// independent of their order of arrival (see order.go). Late, repeated and shuffled samples therefore result in the
// same columns and the same bytes.
//
// A chunk is a block, not a stream of bits: it is decoded at once into whole columns, by simple loops over bytes. Its
// parts, from the outermost:
//
//	chunk.go       envelope: version, counts, time range, checksum
//	floats.go      blocks of up to 1024 floats: timestamps, start timestamps, values
//	values.go      values as decimal numbers m / 10^e if that is exact, else as their bits
//	ints.go        runs of integers, the common encoding of the above: constant, plain, delta or delta of delta
//	column.go      the residues of runs: small numbers, byte by byte
//	histograms.go  native histograms, in Prometheus' own encoding
//	histogram.go   the canonical form of a histogram, and its encoding outside of a chunk
//
// The engine compresses rows with zstd, some hundred series of a metric together. Common data of these series, such as
// the times of their scrapes, or counters that increase alike, costs almost nothing if it is encoded as the same bytes.
// A chunk therefore consists of whole bytes, and very little in it is packed into bits.
//
// Floats are restored bit for bit: NaNs with their payload, stale markers, infinities, -0. For histograms, see
// CanonicalHistogram.
package chunk
