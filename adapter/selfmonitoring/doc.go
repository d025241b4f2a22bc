// Package selfmonitoring stores the metrics of the process itself, as if a Prometheus scraped /metrics: with the same
// names and labels, in a separate tenant, through the same write path as all other samples. cmd/cassia runs one
// Monitor.
//
//	registry ─► Gather ─► protobuf ─► Prometheus' parser ─► adapter.Intake ─► storage.Batch
//	                                        │ labels job and instance
//	                                        │ a stale marker for each series that ended
//	                                        └ up, scrape_duration_seconds, scrape_samples_scraped
//
// It doesn't delay other writers: it has at most one commit in progress. If the store rejects a round, the round is
// counted and dropped, and the next round starts on time.
package selfmonitoring
