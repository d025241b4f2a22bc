// Package exporter writes the samples of a store in formats that other programs read: blocks of Prometheus' TSDB, or
// lines of text. cmd/cassia calls it for its export commands. It only reads from the store.
//
//	spans of time ─► pieces, a day or a block wide ─► metrics ─► Select ─► series, sorted ─► a block, or lines
//
// It reads piece by piece. Memory is bounded by the labels of one metric's series in a day (for blocks: of all series
// in the block) and the chunks of some hundred series, however long the exported range is.
//
// # Properties preserved by each format
//
//	              floats      NaN's bits, stale  histograms  start timestamps  times
//	blocks        bit by bit  yes                yes         if asked for      ms
//	openmetrics   bit by bit  no: omitted (1)    omitted     omitted           ms
//	jsonl         bit by bit  marked (2)         omitted     omitted           ms
//	csv           bit by bit  stale only         omitted     omitted           ms
//
// (1) Stale markers are omitted, because text can't distinguish them from a NaN; other NaNs lose their bits. (2) A line
// has null, as VictoriaMetrics writes it, and the bits in a separate field. Everything omitted or changed is counted. A
// sender's hint that a histogram was reset is written to the header of a chunk; Prometheus' reader ignores it and
// detects resets itself. Exemplars, metadata (except in openmetrics) and rollups aren't exported: rollups can be
// recomputed from samples. Where raw samples have expired, the same number of samples is computed from rollups
// (expand.Expander) and counted; Options.LeaveRollups omits these times.
//
// Files appear under their names only when they are complete and synced, so an interrupted export leaves nothing that
// looks complete.
package exporter
