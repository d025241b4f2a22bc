// Package inspect reads a store for operators and changes nothing. Commands and the page show its results. It may be
// used while servers use the store.
//
//	storage.Store.View ──┬─► ListWindows: a tenant's windows, their seals and their space
//	                     ├─► Overview: a summary of the stored data
//	storage.OpenView ────┴─► ExamineStore: waiting slots, damage, expired windows, processes
//	engine ────────────────► Rows: the rows of a partition, as text; SpaceByKind: the disk usage of a directory
package inspect
