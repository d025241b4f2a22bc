// Package counts counts the series of a store: unsealed series in the head, and series of windows of raw rows.
//
// Package storage creates one Statistics per store with New. The API and the web page call Cardinality, CountSeries and
// Churn to show which metrics and labels have the most series. Package downsample calls Uncounted and CountWindow in
// the background, so that answers about ended windows read stored counts instead of labels:
//
//	raw: labels ─► Uncounted ─► CountWindow ─► catalog: counts for one state of the window ─► CountSeries, Churn
//
// Stored counts are valid for one state of a window, which changes with each write and with the classes that are
// counted. If the window is in another state, for example after late samples, its labels are counted again. A caller
// may assume that counts of windows are exact and that memory is bounded. If a reader ignored the state, it would
// return outdated counts.
//
//	head: series ─► Cardinality, CountSeries of unsealed series
//
// window.go counts a window and stores the counts, stored.go reads them. series.go and churn.go answer from stored
// counts, or count with walk.go, which visits each series once. values.go counts in bounded memory. cardinality.go
// counts the head, and unsealed.go reuses these counts for a while.
//
// design/queries.md explains why counts are stored, and why by the state of a window.
package counts
