// Package adapter holds what the ways in and out share; each way has a package below, which imports this one and none
// of its siblings.
//
//	remotewrite   bytes on the wire name a series      ─► Batch.Lookup
//	otlp, jsonapi labels are in hand       ─► Intake   ─► Batch.Lookup, Batch.Define
//	                                                         │
//	every error of a batch                 ─► Status   ◄─────┘   one table, so that all answer alike
//
// Bytes that requests hold together are bounded by a Budget.
//
// design.md has the rules and the reasons.
package adapter
