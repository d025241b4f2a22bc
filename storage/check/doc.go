// Package check verifies the stored rows of a store and compares them with each other.
//
//	stage    ─► blobs: checksums, slots; readers read each slot that has blobs
//	windows  ─► raw:      labels give ids; catalog names labels; chunks have the hash in their keys, and are in their slot
//	            r5m, r1h: what the finer rows make, where these are all there
//	            counts:   what counting gives
//	unlisted ─► windows that have rows and aren't listed
//	files    ─► the engine's files, where this process keeps them
//
// Each problem is reported with its row, and the check goes on. Rows that are being changed, or of whose sources some have expired or can't be
// read, aren't compared.
package check
