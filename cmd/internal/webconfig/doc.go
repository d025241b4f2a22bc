// Package webconfig reads exporter-toolkit's web configuration file: TLS, and users who may do everything.
//
// The file and the certificates that it names are read again when they change. If they become invalid, the last valid
// settings stay in effect.
package webconfig
