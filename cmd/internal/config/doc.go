// Package config turns the command line of cassia serve into the settings of its parts: it declares the
// flags, computes defaults from the machine's memory, and refuses invalid values with an error of one line, which has
// the valid ones.
package config
