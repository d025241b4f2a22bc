// Package auth identifies the users of a server. Users are read from a file. Each has passwords, tokens or
// certificates, roles that permit actions, and the tenants that the user may access.
//
//	request ─┬ Authorization: Basic   ─ bcrypt, a few at once, cached ─┐
//	         ├ Authorization: Bearer  ─ SHA-256                       ─┼─► User: roles, tenants
//	         └ verified certificate   ─ its names                     ─┘
//
// Package server calls it once per request and enforces the roles and tenants. The file contains only hashes. Neither
// the hashes nor the credentials of a request appear in errors or logs.
package auth
