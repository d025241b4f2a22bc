// Package webconfig reads exporter-toolkit's web configuration file. It configures TLS, and users, who have all roles.
// Package server calls it for each connection and request.
//
// The file and its certificates are read again when they change. If they become invalid, the last valid settings stay
// in effect.
package webconfig
