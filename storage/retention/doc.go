// Package retention decides how long rows are kept. It has the classes of series, the retentions of a store's processes, the expiries of windows, the retention
// boundaries of tenants and the holes between rows. It rolls up nothing and drops nothing: its caller does, see Roller and Boundaries.Dropped.
//
//	flags of this process ─┐
//	flags of the others ───┴─► longest: Keep ─┬─► Advance: boundaries ─► hidden, missing, dropped ─► Shown: what a query sees
//	                                          └─► Expiry of a window, fixed before its first row ─┬─► rows of the window
//	labels ─► list of classes of the day ─► class of a series                                     └─► Standing, holes
//
// classes.go, lists.go; keep.go, advertised.go; boundary.go, boundaries.go, advance.go, changes.go; expiry.go, holes.go; hidden.go, placement.go
//
// # The calls of a store
//
//   - To write: FixClasses and Placement for samples that are sealed, ImportClasses and ImportPlacement for imported ones, Expiry for each batch of rows.
//   - To read: Shown for a query, and Days for the classes of unsealed series.
//   - To compute from rows, or remove any: LearnWindow, then Standing; ClassesOn.
//   - To expire: Advance, then Boundaries.Dropped and AllDropped.
//   - To accept samples: Oldest.
//
// design/retention.md has the rules and the reasons.
package retention
