// Package lines reads history from files of lines: OpenMetrics' text, and the JSON lines that VictoriaMetrics exports.
//
//	file, pipe or answer ─► reader: lines, their numbers and places ─► a format's parser ─► Gatherer ─► batches
//
// A position is the place in bytes where the next run begins, always that of a line. Where input can't be moved to it, such
// as a pipe, what comes before is read and passed over. Memory holds one line and one batch.
package lines
