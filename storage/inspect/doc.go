// Package inspect looks at a store and changes nothing: commands and the page show operators its results.
//
//	storage.Store.View ──┬─► Survey: a tenant's windows, their seals and their space
//	                     ├─► Overview: the stored data, in short
//	storage.OpenView ────┴─► Examine: what waits, is damaged, is past its retention, and who is there
//	engine ────────────────► Rows: the rows of a partition, in words; Space: what a directory takes
package inspect
