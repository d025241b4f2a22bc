// Package victoria reads history from VictoriaMetrics: what /api/v1/export and /api/v1/export/native write, from a file, or
// from the server itself, day by day. Package lines reads the JSON lines.
package victoria
