// Package lines reads history from files of lines: OpenMetrics' text, and the JSON lines that VictoriaMetrics exports.
//
//	file, pipe or answer ─► reader: lines, their numbers and places ─► a format's parser ─► Gatherer ─► batches
//
// A position is the start of the line with which the next run begins, with a checksum of the input before it. The next run reads this part of the
// input again. If it differs, the run begins with the first line. Memory holds one line and one batch.
package lines
