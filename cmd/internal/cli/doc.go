// Package cli is what cassia's command line shows besides running commands: usage with commands and flags in groups, the nearest
// name where one is unknown, a man page, completions for shells, and the manual's page of flags. All of it is computed from
// kingpin's model of the application, so a new flag appears everywhere once it is declared.
package cli
