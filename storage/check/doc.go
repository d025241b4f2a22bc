// Package check verifies the stored rows of a store and compares them with each other. The command cassia check runs
// it, and most tests of the storage packages at their end.
//
//	stage    ─► blobs: checksums, slots; readers look for blobs in each slot that has any
//	windows  ─► raw:      labels match ids; the catalog has their names; chunks match the hash in their keys and their slot
//	            r5m, r1h: equal the result of rolling up the finer rows, if all of these exist
//	            counts:   equal the result of counting
//	unlisted ─► windows that have rows and aren't listed
//	files    ─► the engine's files, if this process keeps them
//
// Each problem is reported with its row, and the check continues. Rows that are being changed aren't compared. The same
// applies to rows whose sources have partly expired or can't be read.
package check
