// Package kairosdb imports what KairosDB keeps on Cassandra. The keyspace is read by storage/cassandra/kairosdb; here its
// series become Prometheus' series, and its rows batches.
//
//	metric, tags ──► Mapping ──► labels
//	rows         ──► slices of 7 days ──► metrics ──► series ──► batches
//
// # Series
//
// A series of KairosDB's is a metric with tags; the type of its points is no part of it. A mapping file renames metrics
// and tags, drops and adds labels. Two series may not become one: Plan names them, and nothing is imported.
//
// # Order
//
// Rows of KairosDB hold a series for three weeks, and those of Cassia all series of a metric for a day. So all metrics
// are read a slice of 7 days after the other, and in a slice one series after the other, by metric and tags. Slices are
// left-open, as Cassia's windows are: a point at midnight belongs to the day before. A position is a slice with a metric
// and tags. KairosDB may be written to meanwhile: from a position on, all slices are read again that had ended less than a week
// before they were read. What comes to it later than that is found by an import without a checkpoint only.
package kairosdb
