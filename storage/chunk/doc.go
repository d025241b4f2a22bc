// Package chunk keeps the samples of one series: in memory as columns, and in bytes as a sealed chunk.
//
//	      AppendFloat, AppendHistogram                AppendChunk
//	wire ────────────────────────────► Samples ──────────────────────► bytes of a raw row
//	                                   │ T  V  ST │                        │
//	                                   │ H        │ ◄──────────────────────┘
//	                                   └──────────┘          Decode
//	                                     Normalize, Clip, Covers
//
// Samples are collected in any order. Normalize puts them in order, and where two have one timestamp it
// decides which stands, in a way that doesn't depend on which came first (see order.go). So late, repeated
// and shuffled samples end in the same columns, and in the same bytes.
//
// A chunk is a block and no stream of bits: it is decoded at once, into whole columns, by simple loops over
// bytes. Its parts, from the outside in:
//
//	chunk.go       envelope: version, counts, time range, checksum
//	floats.go      blocks of up to 1024 floats: timestamps, start timestamps, values
//	values.go      values as decimal numbers m / 10^e where that is exact, else as their bits
//	ints.go        runs of integers, which all of these are: constant, plain, delta or delta of delta
//	column.go      what remains of them: small numbers, byte by byte
//	histograms.go  native histograms, in Prometheus' own encoding
//	histogram.go   the canonical form of a histogram, and its bytes outside of a chunk
//
// The engine compresses rows with zstd, some hundred series of a metric together. What they share, such
// as the times of their scrapes, or counters that count alike, costs next to nothing if it gives the same
// bytes. So a chunk is made of whole bytes, and hardly anything in it is packed into bits.
//
// Everything comes back bit for bit: NaNs with their payload, stale markers, infinities, -0. Of histograms
// see Canonical for what is kept.
package chunk
