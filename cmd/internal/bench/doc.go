// Package bench makes load for any server that takes Prometheus' remote write, and checks what came of it.
//
// A Workload describes the data completely: series i has at step k the value Value(i, k), whoever computes it
// and whenever. So a run needs no memory of what it sent, and whatever is read back can be compared sample by
// sample, by another process if need be.
//
//	Workload ──► Generator ──► shards (series i goes to shard i mod senders)
//	                             │  refs: (series, step), in the order of delivery
//	                             ▼
//	                          encoder (1.0 or 2.0, label bytes prepared once a series)
//	                             │
//	                             ▼  POST, again until it is acknowledged
//	                          server ──ack──► Acks ──► Verify reads back and compares
//
// A shard sends one request at a time, as Prometheus' shards do.
package bench
