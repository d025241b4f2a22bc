// Package bench generates load for any server that accepts Prometheus remote write, and verifies what the server
// stored. The command cassia bench and the benchmarks use it.
//
// A Workload completely determines the data: the value of series i at step k is Value(i, k), in any process and at any
// time. A run therefore doesn't keep the samples that it sent, and even another process can verify all stored samples.
// A change to the generator would invalidate the ack logs of earlier runs.
//
//	Workload ──► Generator ──► shards (series i is sent by shard i mod senders)
//	                             │  refs: (series, step), in the order of delivery
//	                             ▼
//	                          encoder (1.0 or 2.0, label bytes prepared once per series)
//	                             │
//	                             ▼  POST, repeated until it is acknowledged or RetryFor has passed
//	                          server ──ack──► Acks ──► Verify reads back and compares
//
// A shard sends one request at a time, as Prometheus' shards do.
package bench
