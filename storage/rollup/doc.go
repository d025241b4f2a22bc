// Package rollup keeps what PromQL asks of samples without keeping the samples: buckets of 5 minutes and of
// an hour. It is pure: no clock, no engine.
//
//	samples of a slot ──► Build ──► 5m buckets ──► Coarsen ──► 1h buckets
//	                                    │                         │
//	                                AppendChunk               AppendChunk      one chunk per series and
//	                                    ▼                         ▼            slot, or series and day
//	                                 Decode, of the columns that a query asks for
//
// A bucket is left-open and right-closed, as PromQL's ranges are. It keeps the first and the last sample with
// their timestamps, and what the counter lost by resets between them, so that rate over a run of buckets is
// the same arithmetic as over their samples. It keeps the second central moment of the values, but for counters (moment.go).
package rollup
