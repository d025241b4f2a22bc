// Package overhttp brings history into the store of a server that is running.
//
//	cassia import                                        cassia serve
//	Source ─► Client ── POST, series of whole days ────► Handler ─► storage.Import
//	            ◄────── 200, once they are durable ─────
//
// A Client is an importer.Destination: its series are sent in bodies that are bounded by the server's
// Terms, each is repeated until there is an answer, and an answer comes once all is durable. The same series may come
// again: they are stored once. A comparison goes the same way, and the server compares.
//
//	GET  /api/v1/cassia/import           what the server takes, as JSON: Terms
//	POST /api/v1/cassia/import           stores a body's series; the answer is a JSON stored
//	POST /api/v1/cassia/import/compare   compares them with stored samples; the answer is a JSON compared
//
// # A body
//
// Content-Type application/vnd.cassia.series, and Content-Encoding snappy: one block of snappy's, of
//
//	+---------+--------------+------------+--------+--------+- -
//	| version | CRC-32C of   | resolution | series | series | …
//	| 1 byte:2| what follows | 1 byte     |        |        |
//	|         | 4 bytes LE   |            |        |        |
//	+---------+--------------+------------+--------+--------+- -
//
// each of which is
//
//	+-----------+------+-------+- - -+---------+-------+
//	| number of | name | value |  …  | length  | chunk |
//	| labels    | text | text  |     | uvarint |       |
//	| uvarint   |      |       |     |         |       |
//	+-----------+------+-------+- - -+---------+-------+
//
// A text is its length, uvarint, and its bytes. The chunk is as storage stores one, but for the time that it is about:
// storage/FORMAT.md has it byte by byte. So samples come over bit for bit, with start timestamps and native histograms.
// A series may stand there several times.
//
// The resolution is 0 for samples. It is 1 for buckets of 5m, and 2 for those of 1h, of aggregates: then each chunk is a rollup chunk of version 0.
package overhttp
