// Package retention decides how long rows are kept. It manages the classes of series, the retentions of a store's
// processes, the expiries of windows, the retention boundaries of tenants and the holes between rows.
//
// Package storage creates one Keeper per store; package query reads its boundaries. The Keeper doesn't compute rollups
// or drop rows itself: the caller does, see Roller and Boundaries.Dropped. A caller may assume that the methods are
// safe for concurrent use, that all processes of a store follow the longest of their retentions, and that a week of
// observed uptime passes between hiding rows and dropping them. If a caller wrote rows without Expiry, or removed rows
// without Dropped and UnexpiredClasses, the store would lose rows early or return expired rows.
//
//	flags of this process ─┐
//	flags of the others ───┴─► longest ───────┬─► Advance: boundaries ─► hidden, missing, dropped ─► VisibleRows
//	                                          └─► Expiry of a window, fixed before its first row ─┬─► rows of the window
//	labels ─► list of classes of the day ─► class of a series                                     └─► unexpired classes, holes
//
// classes.go, lists.go; durations.go, advertised.go; boundary.go, boundaries.go, advance.go, changes.go; expiry.go,
// expiry_memory.go, holes.go; hidden.go, placement.go
//
// # The calls of a store
//
//   - To write: FixClasses and Placement for sealed samples, ImportClasses and ImportPlacement for imported ones,
//     Expiry for each batch of rows.
//   - To read: VisibleRows for a query, and NewDayLists for the classes of unsealed series.
//   - To compute from rows, or remove rows: LoadExpiries, then UnexpiredClasses; ClassesOn.
//   - To expire: Advance, then Boundaries.Dropped and AllDropped.
//   - To accept samples: SetOldestTimes.
//
// design/retention.md has the rules and the reasons.
package retention
