// Package otlp takes metrics from OpenTelemetry's SDKs and Collector: OTLP over HTTP, with bodies in protobuf or JSON.
// What becomes of names, attributes and kinds is Prometheus' own translation, with Prometheus' options.
//
//	POST /api/v1/otlp/v1/metrics
//	     │ negotiate     protobuf or JSON, gzip or nothing; anything else: 415
//	     │ readBody      bytes of all requests under way are bounded: 503; one body: 413
//	     │ weigh         what the message becomes in memory is estimated before it is decoded: 413; nesting: 400
//	     ▼
//	 pmetricotlp         the collector's own decoder
//	     │ prune         points that can't be translated, or for a price out of proportion, are counted and taken out
//	     ▼
//	 PrometheusConverter ─► appender ─► adapter.Intake ─► storage.Batch      series refused are counted, others go on
//	     ▼
//	 Commit              durable: 200, with partial_success where points were refused; nothing taken: 400; else 429, 503, 500
//
// Deltas are refused, as Prometheus refuses them by default: a store that several processes share has no place
// where they could be summed up. SDKs are configured to send cumulative values with
// OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative, which is their default.
package otlp
