// Package otlp receives metrics from OpenTelemetry's SDKs and Collector: OTLP over HTTP, with bodies in protobuf or
// JSON. Names, attributes and kinds are translated by Prometheus' own translation, with Prometheus' options. cmd/cassia
// serves the handler; the request's context carries the tenant.
//
//	POST /api/v1/otlp/v1/metrics
//	     │ negotiate     protobuf or JSON, gzip or nothing; anything else: 415
//	     │ readBody      too many bytes in all concurrent requests: 503; in one body: 413
//	     │ memory        memory of the decoded message, estimated before decoding: 413; too deeply nested: 400
//	     ▼
//	 pmetricotlp         the Collector's own decoder
//	     │ prune         removes and counts points that can't be translated or cost too much
//	     ▼
//	 PrometheusConverter ─► appender ─► adapter.Intake ─► storage.Batch      counts rejected samples and continues
//	     ▼
//	 Commit              durable: 200, with partial_success if points were rejected; nothing accepted: 400;
//	                     else 429, 503, 500
//
// Deltas are stored as cumulative points with a start timestamp, see delta.go. The row that records that a tenant sends
// deltas must be durable before their samples are.
//
// After a 200, or a 4xx other than 429, a collector drops the request. Points that may be accepted later
// therefore fail their request with 503, although the other points are stored.
package otlp
