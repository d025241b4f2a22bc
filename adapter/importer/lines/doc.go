// Package lines reads history from files of lines: OpenMetrics text, and the JSON lines that VictoriaMetrics exports.
// cmd/cassia runs a Source through package importer; package victoria uses Read for responses.
//
//	file, pipe or response ─► reader: lines, their numbers and offsets ─► a format's parser ─► Gatherer ─► batches
//
// A position is the start of the line with which the next run starts, and a checksum of the input before it. The next
// run reads that part of the input again. If it has changed, the run starts with the first line. Memory is bounded by
// one line and one batch.
package lines
