// Package ended lists windows that are over and wait for work in the background: rollups to be compacted, and raw rows whose series are to be counted.
//
//	tenants ─► windows of each ─► versions of their commit records ─┬─► as in Memory: nothing to do, nothing read
//	                                                                └─► OverWindow ─► the work ─► noted in Memory
package ended
