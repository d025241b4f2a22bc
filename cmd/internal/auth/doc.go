// Package auth holds the users of a server: users from a file, each with the passwords, tokens or certificates that
// show who they are, the roles that allow actions, and the tenants whose data they may use.
//
//	request ─┬ Authorization: Basic   ─ bcrypt, a few at once, remembered ─┐
//	         ├ Authorization: Bearer  ─ SHA-256                           ─┼─► User: roles, tenants
//	         └ verified certificate   ─ its names                         ─┘
//
// The file holds hashes only, and neither these nor what a request shows stands in any error or log.
package auth
