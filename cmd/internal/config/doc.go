// Package config turns the command line of cassia serve into the options of its parts. It declares the flags, derives
// defaults from the machine's memory, and rejects invalid values with a one-line error that lists the valid ones.
// cmd/cassia calls Register, and Validate after parsing; before Validate the fields aren't complete. Other commands use
// its groups of flags. No other package reads flags.
package config
