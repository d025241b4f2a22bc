// Package api serves Prometheus' HTTP API, version 1, from a store. cmd mounts its handler under Prefix, behind
// authentication and behind the code that puts the tenants of a request into its context.
//
// Prometheus' package web/api/v1 implements queries, series, labels, remote read and parsing. Its other routes depend
// on parts of Prometheus that Cassia doesn't have, so handlers in this package replace them:
//
//	request --> overrides: metadata, status/..., admin/..., not supported
//	       \--> web/api/v1, with empty lists for targets, rules and alerts
//
// Every answer, including errors, has Prometheus' format. Routes that need the store return 503 until it is ready.
// Status pages don't wait for the store.
package api
