// Package metadata asks Prometheus servers for the type, unit and help of the metrics that they scrape: remote write 2.0 as
// Prometheus 3.15 sends it carries none.
//
//	each source ─► GET /api/v1/metadata ─► decoded metric by metric ─► Note
//	     ▲                                   │
//	     └─ after Every, or sooner after a failure or an empty answer
//
// A source that can't be reached is logged and counted, and asked again; nothing else depends on it.
package metadata
