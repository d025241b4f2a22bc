// Package importer brings history from elsewhere into a store.
//
//	Source ── batches of series ──► Destination ── storage.Import: sealed rows with rollups
//	   └───── positions ──────────► checkpoint, a file
//
// A Source reads one kind of history: TSDB blocks, a text file, another system's API. Run takes it over batch by batch,
// remembers in a file how far it came, and goes on from there when it is run again: samples that were imported twice are stored
// once. A Destination is a store that is opened here, or, in package overhttp, one that a server has. Verify reads the source again and compares it with what the store answers.
package importer
