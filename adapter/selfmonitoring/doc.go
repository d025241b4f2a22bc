// Package selfmonitoring stores the metrics of the process itself, as a Prometheus would that scrapes /metrics: by the same
// names and labels, in a tenant of their own, through the same way as everybody's samples.
//
//	registry ─► Gather ─► protobuf ─► Prometheus' parser ─► adapter.Intake ─► storage.Batch
//	                                        │ labels job and instance
//	                                        │ a stale marker for each series that is gone
//	                                        └ up, scrape_duration_seconds, scrape_samples_scraped
//
// It is never in the way of others: it has one commit under way at most, gives up what the store refuses, counts that, and
// goes on with the next round.
package selfmonitoring
