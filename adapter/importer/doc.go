// Package importer copies historical samples from another system into a store.
//
//	Source ── batches of series ──► Destination ── storage.Import: sealed rows with rollups
//	   └───── positions ──────────► checkpoint, a file
//
// A Source reads one kind of history: TSDB blocks, a text file, the API of another system. Run imports it batch by
// batch, and writes its progress to a checkpoint file. The next run resumes there. Importing a sample twice stores it
// once. A Destination is a store opened by this process or, in package overhttp, the store of a server. Verify reads
// the source again and compares it with the stored samples.
package importer
