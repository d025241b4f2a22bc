// Package webconfig reads exporter-toolkit's web configuration file. The file configures TLS and users. These users
// have all roles. Package server applies the settings to each connection and request.
//
// The file and its certificates are read again when they change. If they become invalid, the last valid settings stay
// in effect.
package webconfig
