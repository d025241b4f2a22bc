// Package counts counts the series of a store: those that aren't sealed, in the head, and those of windows of raw rows.
//
//	the window is over and rests:
//
//	raw: labels ─► Uncounted ─► CountWindow ─► catalog: counts of series, of one state of the window ─► CountSeries, Churn
//
// Where the window is in another state now, as after late samples, labels are counted.
//
//	head: series ─► Cardinality, CountSeries of unsealed series
//
// window.go counts a window and stores that, stored.go reads it; series.go and churn.go answer from it, or count by walk.go, which visits each
// series once; values.go counts in bounded memory; cardinality.go counts the head, and unsealed.go reuses
// these counts for a while.
//
// design/queries.md explains why counts are stored, and why by the state of a window.
package counts
