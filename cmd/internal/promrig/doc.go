// Package promrig starts real programs for the tests and benchmarks: Prometheus, a node exporter, and the
// cassia binary, each on a free port of this machine with its data in a folder of its own, and asks them
// over HTTP.
//
//	node exporter ◄──scrape── Prometheus ──remote write──► cassia
//	                              ▲                        ▲    ▲
//	                              │ query_range            │    │ remote read
//	                              └──────── test ──────────┘    └── a second, empty Prometheus ◄── test
package promrig
