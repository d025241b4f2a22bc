// Package adapter holds the code that all ingest, query, export and import protocols share. Each protocol has a
// subpackage of its own, which imports this package and none of its siblings; cmd/cassia connects them to the store.
//
//	remotewrite   looks series up by their bytes on the wire  ─► Batch.Lookup
//	otlp, jsonapi have labels                      ─► Intake  ─► Batch.Lookup, Batch.Define
//	                                                                │
//	every error of a batch                         ─► HTTPStatus ◄──┘   one table: all protocols return the same status
//
// An Intake and a Share belong to one request and one goroutine; a Budget is shared by all requests. Every request
// claims its bytes from a Budget before it allocates them, so that the memory of concurrent requests is bounded.
//
// HTTPStatus and the reasons of a RejectedError are the contract with senders: a 4xx status makes a sender drop its
// samples, so an error that a retry may resolve must not map to 4xx (429 excepted).
//
// design.md has the rules and the reasons.
package adapter
