// Package fetch reads history from other servers over HTTP. Importers of specific servers supply the request and its
// decoding (packages victoria and remoteread); this package supplies days, retries and positions.
//
//	days ─► a request each, retried while the server is busy ─► Gatherer ─► batches
//
// A position is the end of a day that was stored completely; an incomplete day is read again. If a day has multiple
// batches, their boundaries may differ between runs, because servers return series in any order, but their union is the
// same.
package fetch
