// Package fetch reads history from other servers over HTTP.
//
//	days ─► a request each, tried again while the server is busy ─► Gatherer ─► batches
//
// A position is the end of a day that is stored: a day of which only a part is, is read again. Batches that a day has more of
// than one may differ from time to time, for servers answer in any order, but not what they hold together.
package fetch
