// Package config turns the command line of cassia serve into options for the other packages. It declares the flags,
// derives defaults from the machine's memory, and rejects invalid values with a one-line error that lists the valid
// ones. cmd/cassia calls RegisterFlags, parses the command line and then calls Validate, which completes the fields.
// Other commands than serve use some of the package's groups of flags. No other package reads flags.
package config
