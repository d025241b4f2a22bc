// Package ended lists windows that have ended and need background work: compaction of rollups, and counting of the
// series of raw rows. The passes of package storage call AllWindows, do the work, and record the version of the window
// in Memory, so that a later pass reads nothing for a window that hasn't changed.
//
//	tenants ─► windows of each ─► versions of their commit records ─┬─► as in Memory: nothing to do, nothing read
//	                                                                └─► OverWindow ─► the work ─► noted in Memory
package ended
