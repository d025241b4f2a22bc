// Package config turns the command line of cassia serve into the settings of its parts: it declares the
// flags, computes defaults from the machine's memory, and says in one line what is wrong with a value and
// what would be right.
package config
