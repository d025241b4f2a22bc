// Package victoria reads history from VictoriaMetrics: the output of /api/v1/export and /api/v1/export/native, from a
// file or from the server itself, day by day. Package lines parses the JSON lines, package fetch sends the requests.
package victoria
