// Package server is the HTTP side of the process: listeners, TLS and basic authentication, the routes that
// aren't Prometheus' API, and what every request goes through.
//
//	listener (bounded connections, exporter-toolkit's TLS and auth)
//	  └ recover ─ instrument ─┬ /api/v1/write   tenant ─ remote write
//	                          ├ /api/v1/        tenant ─ Prometheus' API
//	                          ├ /-/healthy /-/ready /-/seal
//	                          ├ /metrics /debug/pprof/
//	                          └ /               links
package server
