// Package exporter writes what a store holds for other programs to read: blocks of Prometheus' TSDB, or lines of text.
//
//	spans of time ─► pieces, a day or a block wide ─► metrics ─► Select ─► series, sorted ─► a block, or lines
//
// It reads piece by piece, so that memory holds the labels of a metric's series of a day (of a block: those of all its
// series) and some hundred series' chunks, however long the history is.
//
// # What each format keeps
//
//	              floats      NaN's bits, stale  histograms  start timestamps  times
//	blocks        bit by bit  yes                yes         if asked for      ms
//	openmetrics   bit by bit  no: left out (1)   left out    left out          ms
//	jsonl         bit by bit  marked (2)         left out    left out          ms
//	csv           bit by bit  stale only         left out    left out          ms
//
// (1) Stale markers are left out, for a text can't distinguish them from a NaN; other NaNs lose their bits. (2) A line has null, as
// VictoriaMetrics writes it, and the bits in a member of its own. Everything left out or changed is
// counted. That a sender knew of a histogram's reset stands in the head of a chunk, which Prometheus' reader doesn't
// believe: it looks for itself. Exemplars, metadata (but for openmetrics) and rollups aren't exported: rollups follow from samples. Where only
// these are left, as many samples as there were are made of them (rollup.Expander), and counted; Options.LeaveRollups leaves such times out.
package exporter
