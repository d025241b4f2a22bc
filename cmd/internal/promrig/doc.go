// Package promrig starts real programs for tests and benchmarks, such as Prometheus, a node exporter and the cassia
// binary, and sends them HTTP requests. Each program listens on a free port of this machine and stores its data in a
// separate folder.
//
//	node exporter ◄──scrape── Prometheus ──remote write──► cassia
//	                              ▲                        ▲    ▲
//	                              │ query_range            │    │ remote read
//	                              └──────── test ──────────┘    └── a second, empty Prometheus ◄── test
package promrig
