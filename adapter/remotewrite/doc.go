// Package remotewrite takes samples from Prometheus and whoever speaks like it: remote write 1.0 and 2.0 over
// HTTP. SPEC.md goes through both specifications, point by point, with the test that shows each.
//
// The way from bytes to a batch:
//
//	POST /api/v1/write
//	     │ negotiate     which message, 1.0 or 2.0; anything else: 415
//	     │ budget        bytes of all requests under way; over it: 503
//	     │ readBody      compressed bytes, into a pooled buffer; over the limit: 413
//	     │ decompress    snappy's claimed length is checked before anything is allocated: 413 or 400
//	     ▼
//	 decoder             walks the protobuf bytes in place, twice a series: labels, then samples
//	     │
//	     │   1.0: the bytes of the label fields as they came  ┐
//	     │   2.0: the same bytes, written from the symbols    ├─► alias ─► Batch.Lookup ─► *Series
//	     │   both for one series: the same bytes              ┘     │ not known
//	     │                                                          ▼
//	     │                                       parse, sort, Batch.Define(alias, labels)
//	     ▼
//	 Batch.Float, Batch.Histogram      bad samples are counted by reason, good ones go on
//	     ▼
//	 Batch.Commit                      durable: 204 (or 400, 429 with the reasons); else 503 or 500
//
// The alias of a series is the protobuf encoding of its labels, sorted, without empty ones. That is what every
// correct sender of 1.0 has on the wire, so a known series costs one look-up of bytes that are already there.
// A sender that orders labels in another way finds the same series by the slower road, and leaves no second
// alias behind, so that nobody can fill the memory with names for one series.
//
// Nothing is allocated for the float samples of known series.
package remotewrite
