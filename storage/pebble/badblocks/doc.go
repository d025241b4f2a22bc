// Package badblocks keeps a list of the damaged blocks that reads of sorted files have found, and handles later reads
// of these blocks.
//
//	Pebble's event ──► List.Record
//	                      │
//	reads of files ──► List.FS ──► error of a known block, at a limited rate
//	                      │
//	health requests ─► List.Blocks
package badblocks
