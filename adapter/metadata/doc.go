// Package metadata reads the type, unit and help of metrics from the Prometheus servers that scrape them. It exists
// because remote write 2.0, as Prometheus 3.15 sends it, carries no metadata. cmd/cassia runs one Poller for all
// configured sources.
//
//	each source ─► GET /api/v1/metadata ─► decoded metric by metric ─► Note
//	     ▲                                   │
//	     └─ after Every, or sooner after a failure or an empty response
//
// A source that can't be reached is logged, counted and retried. Nothing else depends on it.
package metadata
