// Package kairosdb reads what KairosDB has written into a keyspace of Cassandra, to move it elsewhere. It writes
// nothing. It is that of KairosDB 1.3's classes and of the rows that a running one writes; see the tests of
// cmd/internal/e2e.
//
//	string_index        metric_names → names of metrics
//	row_key_time_index  metric → times of its rows           (from KairosDB 1.2 on)
//	row_keys            metric, row time → type, tags        (from KairosDB 1.2 on)
//	row_key_index       metric → keys of rows, as blobs      (before)
//	data_points         key of a row → column, value         a column a point
//	spec                how wide rows are, and columns' unit (from KairosDB 1.3 on)
//
// A row holds the points of one series (metric, tags) of one type in a width of time, three weeks by default. A series
// whose points were written now as 3 and now as 3.5 has two rows for the same three weeks.
//
// # Keys of rows
//
//	┌────────┬───┬─────────────┬───┬────────┬──────┬──────────────────────┐
//	│ metric │ 0 │ row time ms │ 0 │ length │ type │ name=value:name=…:   │
//	│ UTF-8  │ 1 │ 8, signed   │ 1 │ 1      │      │ names sorted (UTF-16)│
//	└────────┴───┴─────────────┴───┴────────┴──────┴──────────────────────┘
//
// Type, its length and the 0 before it are missing in rows of the oldest form, kairos_legacy. In names ':' and '=' have
// a ':' before them, in values an '='; releases before 1.3 wrote them as they are.
//
// # Columns
//
// Four bytes, the point's distance from the row's time:
//
//	unit LEGACY        ms, one bit to the left; the lowest bit is a type of kairos_legacy: 0 integer, 1 floating point
//	unit MILLISECONDS  ms: keyspaces that were made by KairosDB 1.3
//	unit SECONDS       s
//
// Without a table spec, or with nothing in it, the unit is LEGACY, as KairosDB 1.3 takes it.
//
// # Values
//
//	kairos_double           8 bytes, IEEE 754, big-endian
//	kairos_long             zigzag, then 7 bits a byte, the lowest first; the highest bit is set where more bytes follow
//	kairos_legacy, integer  big-endian without leading zeros: 0 to 8 bytes
//	kairos_legacy, float    a byte that is 1, and 4 bytes IEEE 754; or any other, and 8 bytes
//
// Values of other types (kairos_string, kairos_complex, whatever a plug-in brings) are no numbers: only the times of
// such points are reported.
package kairosdb
