// Package kairosdb imports the data of a KairosDB on Cassandra. Package storage/cassandra/kairosdb reads the keyspace;
// this package maps its series to Prometheus' and its rows to batches. cmd/cassia runs a Source through package
// importer.
//
//	metric, tags ──► Mapping ──► labels
//	rows         ──► slices of 7 days ──► metrics ──► series ──► batches
//
// # Series
//
// A series of KairosDB is a metric with tags; the type of its points isn't part of its identity. A mapping file renames
// metrics and tags, and drops and adds labels. If a mapping merges multiple series into one, Plan returns an error that
// lists these series, and nothing is imported.
//
// # Order
//
// A row of KairosDB holds one series for three weeks, while Cassia stores all series of a metric by day. The source
// therefore reads one slice of 7 days after the other, and within a slice one series after the other, by metric and
// tags. Like Cassia's windows, slices are left-open: a point at midnight belongs to the day before. A position is a
// slice with a metric and tags. KairosDB may be written to during an import. A resumed import reads again all slices
// that had ended less than a week before they were read. Points that arrive later are found only by an import without a
// checkpoint.
package kairosdb
