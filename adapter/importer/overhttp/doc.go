// Package overhttp imports history into the store of a running server.
//
//	cassia import                                        cassia serve
//	Source ─► Client ── POST, series of whole days ────► Handler ─► storage.Import
//	            ◄────── 200, once they are durable ─────
//
// A Client is an importer.Destination. It sends series in bodies within the limits of the server's Terms. It repeats a
// request while the server is unreachable or busy, for at most Client.Patience. The server responds when all samples
// are durable. Sending a series again stores it once. Comparisons use the same bodies, and the server compares.
//
//	GET  /api/v1/cassia/import           returns the server's Terms as JSON
//	POST /api/v1/cassia/import           stores the series of a body; returns an importResponse as JSON
//	POST /api/v1/cassia/import/compare   compares the series of a body with stored samples; returns a compareResponse
//
// # Body format
//
// Content-Type is application/vnd.cassia.series, Content-Encoding is snappy. The body is one snappy block of
//
//	+---------+--------------+------------+--------+--------+- -
//	| version | CRC-32C of   | resolution | series | series | …
//	| 1 byte:2| what follows | 1 byte     |        |        |
//	|         | 4 bytes LE   |            |        |        |
//	+---------+--------------+------------+--------+--------+- -
//
// Each series is
//
//	+-----------+------+-------+- - -+---------+-------+
//	| number of | name | value |  …  | length  | chunk |
//	| labels    | text | text  |     | uvarint |       |
//	| uvarint   |      |       |     |         |       |
//	+-----------+------+-------+- - -+---------+-------+
//
// A text is its length, uvarint, followed by its bytes. The chunk has the format of a stored chunk without its time:
// storage/FORMAT.md describes it byte by byte. Samples are transferred unchanged, including start timestamps and native
// histograms. A body may contain a series more than once.
//
// The resolution is 0 for samples, 1 for 5m buckets and 2 for 1h buckets of aggregates. For buckets, each chunk is a
// rollup chunk of version 0.
package overhttp
