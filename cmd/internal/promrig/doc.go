// Package promrig starts real programs for tests and benchmarks: Prometheus, a node exporter, and the cassia binary,
// each on a free port of this machine with its data in its own folder, and sends them requests over HTTP.
//
//	node exporter ◄──scrape── Prometheus ──remote write──► cassia
//	                              ▲                        ▲    ▲
//	                              │ query_range            │    │ remote read
//	                              └──────── test ──────────┘    └── a second, empty Prometheus ◄── test
package promrig
