package config

import (
	"github.com/cassia-db/cassia/adapter/relabeling"
)

// LoadRelabeling reads the file of --write.relabel-file; without one there are no rules.
func (c *Config) LoadRelabeling() (*relabeling.Table, error) {
	if c.RelabelFile == "" {
		return relabeling.Parse(nil)
	}
	return ReadRelabeling("write.relabel-file", c.RelabelFile)
}

// ReadRelabeling reads a file of rules that a flag names.
func ReadRelabeling(flag, name string) (*relabeling.Table, error) {
	text, err := readFile(name, relabeling.MaxFile)
	if err != nil {
		return nil, flagError(flag, name, oneLine(err))
	}
	table, err := relabeling.Parse(text)
	if err != nil {
		return nil, flagError(flag, name, oneLine(err))
	}
	return table, nil
}
