// Package cli has the parts of cassia's command line that don't run commands: the usage with commands and flags in
// groups, suggestions for unknown names, a man page, shell completions, and the manual's page of flags. All of it is
// generated from kingpin's model of the application, so a new flag only needs to be declared.
package cli
