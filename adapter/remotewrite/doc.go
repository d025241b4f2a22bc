// Package remotewrite receives samples from Prometheus and compatible senders: remote write 1.0 and 2.0 over HTTP.
// cmd/cassia serves the handler; the request's context carries the tenant. SPEC.md lists both specifications point by
// point, with the test for each point.
//
//	POST /api/v1/write
//	     │ negotiate     message type, 1.0 or 2.0; anything else: 415
//	     │ budget        bytes of all concurrent requests; above it: 503
//	     │ read          compressed bytes, into a pooled buffer; above the limit: 413
//	     │ decompress    snappy's length header is checked before anything is allocated: 413 or 400
//	     ▼
//	 decoder             walks the protobuf bytes in place, twice per series: labels, then samples
//	     │
//	     │   1.0: the bytes of the label fields as sent       ┐
//	     │   2.0: the same bytes, written from the symbols    ├─► alias ─► Batch.Lookup ─► *Series
//	     │   both for one series: the same bytes              ┘     │ unknown
//	     │                                                          ▼
//	     │                                       parse, sort, Batch.Define(alias, labels)
//	     ▼
//	 Batch.Float, Batch.Histogram      counts rejected samples by reason and continues with the others
//	     ▼
//	 Batch.Commit                      durable: 204 (or 400, 429 with the reasons); else 503 or 500
//
// The alias of a series is the protobuf encoding of its labels, sorted, without empty labels. Every conforming sender
// of 1.0 sends these bytes, so resolving a known series costs one lookup of bytes that are already in memory. If a
// sender orders labels differently, the labels are parsed and sorted to find the same series. No second alias is
// stored, so that senders can't fill the memory with aliases of one series.
//
// Float samples of known series are decoded without allocations. The decoder and its buffers are reused by later
// requests: nothing may keep a reference to a request's bytes after its response. An acknowledged sample is durable,
// and the status decides whether a sender retries or drops samples (package adapter).
package remotewrite
