// Package cli contains the parts of cassia's command line that don't run commands: the usage texts, in which commands
// and flags are grouped, suggestions for unknown names, the man page, shell completions, and the manual's page of
// flags. All of them are generated from kingpin's model of the application, so a new flag only needs to be declared.
package cli
