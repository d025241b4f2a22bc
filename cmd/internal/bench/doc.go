// Package bench generates load for any server that accepts Prometheus remote write, and verifies what the server
// stored. The command cassia bench and the benchmarks call it.
//
// A Workload describes the data completely: series i has at step k the value Value(i, k), in any process and at any
// time. So a run doesn't have to keep the samples that it sent, and all stored samples can be verified, even by another
// process. A change to the generator would invalidate the ack logs of earlier runs.
//
//	Workload ──► Generator ──► shards (series i is sent by shard i mod senders)
//	                             │  refs: (series, step), in the order of delivery
//	                             ▼
//	                          encoder (1.0 or 2.0, label bytes prepared once per series)
//	                             │
//	                             ▼  POST, repeated until it is acknowledged
//	                          server ──ack──► Acks ──► Verify reads back and compares
//
// A shard sends one request at a time, as Prometheus' shards do.
package bench
