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
//
// # Adding an ingest protocol
//
// A protocol is a package here and a row in writeRoutes in cmd/cassia/write_routes.go, which sets its role and passes
// the tenant in the request's context. Package jsonapi is the shortest example. The handler reads the body with
// BodyLimit and ReadAll, adds samples to an Intake, and responds with HTTPStatus; CombineErrors combines the errors of
// rejected samples. Its options need Bodies, Limiter, Rules and Registerer: without Bodies, the memory of concurrent
// requests isn't bounded; without Rules, --write.relabel-file doesn't apply.
//
// Tests name the lines that are then missing in the manual and in storage/plain.go. No test fails if the protocol is
// missing in the tests with hostile requests in cmd/cassia: hostile_test.go, floods_bodies_test.go, panics_test.go and
// secrets_test.go.
package adapter
