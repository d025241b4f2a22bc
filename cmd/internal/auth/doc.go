// Package auth identifies the users of a server. Users are read from a file. Each user has a password, tokens or
// certificates. Roles define what the user may do, and a list of tenants defines whose data the user may access.
//
//	request ─┬ Authorization: Basic   ─ bcrypt, a few at once, cached ─┐
//	         ├ Authorization: Bearer  ─ SHA-256                       ─┼─► User: roles, tenants
//	         └ verified certificate   ─ its names                     ─┘
//
// Package server identifies the user of each request with this package, and enforces the user's roles and tenants. The
// file contains only hashes. Neither the hashes nor the credentials of a request appear in errors or logs.
package auth
