// Package kairosdb reads the data that KairosDB has written to a Cassandra keyspace. cmd/cassia opens a keyspace for
// `cassia import kairosdb`, and package adapter/importer/kairosdb reads it through an interface. The package writes
// nothing. The format is derived from the classes of KairosDB 1.3 and from rows written by it; see the tests of
// cmd/internal/e2e. If a value were decoded differently from KairosDB, wrong samples would be imported.
//
//	string_index        metric_names → names of metrics
//	row_key_time_index  metric → times of its rows           (from KairosDB 1.2 on)
//	row_keys            metric, row time → type, tags        (from KairosDB 1.2 on)
//	row_key_index       metric → keys of rows, as blobs      (before)
//	data_points         key of a row → column, value         one column per point
//	spec                how wide rows are, and columns' unit (from KairosDB 1.3 on)
//
// A row has the points of one series (metric, tags) and one type in a time range, three weeks by default. A series with
// points written as 3 and as 3.5 has two rows for the same three weeks.
//
// # Keys of rows
//
//	┌────────┬───┬─────────────┬───┬────────┬──────┬──────────────────────┐
//	│ metric │ 0 │ row time ms │ 0 │ length │ type │ name=value:name=…:   │
//	│ UTF-8  │ 1 │ 8, signed   │ 1 │ 1      │      │ names sorted (UTF-16)│
//	└────────┴───┴─────────────┴───┴────────┴──────┴──────────────────────┘
//
// In rows of the oldest form, kairos_legacy, the type, its length and the 0 before it are missing. In names, ':' and
// '=' are escaped by a ':' before them, and in values by an '='. Releases before 1.3 didn't escape.
//
// # Columns
//
// Four bytes, the offset of the point from the row's time:
//
//	unit LEGACY        ms, one bit to the left; the lowest bit is a type of kairos_legacy: 0 integer, 1 floating point
//	unit MILLISECONDS  ms: keyspaces created by KairosDB 1.3
//	unit SECONDS       s
//
// If the table spec is missing or empty, the unit is LEGACY, as in KairosDB 1.3.
//
// # Values
//
//	kairos_double           8 bytes, IEEE 754, big-endian
//	kairos_long             zigzag, then 7 bits per byte, the lowest first; the highest bit is set if more bytes follow
//	kairos_legacy, integer  big-endian without leading zeros: 0 to 8 bytes
//	kairos_legacy, float    a byte that is 1, and 4 bytes IEEE 754; or any other byte, and 8 bytes IEEE 754
//
// Values of other types (kairos_string, kairos_complex, types of plug-ins) aren't numbers. Only the times of such
// points are reported.
package kairosdb
