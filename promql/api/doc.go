// Package api serves Prometheus' HTTP API, version 1, from a store.
//
// Prometheus' own package web/api/v1 does what it can: queries, series, labels, remote read, parsing. In
// front of it stand handlers for what would otherwise speak of parts that Cassia doesn't have:
//
//	request --> overrides: metadata, status/..., admin/..., not supported
//	       \--> web/api/v1, with empty lists for targets, rules and alerts
//
// Every answer has Prometheus' format, errors included. What needs the store to be ready answers 503 until
// it is; status pages answer at once.
package api
