package config

import (
	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/storage/bounds"
)

// LoadRelabeling reads the file set by --write.relabel-file. If the flag isn't set, there are no rules.
func (c *Config) LoadRelabeling() (*relabeling.Table, error) {
	if c.RelabelFile == "" {
		return relabeling.Parse(nil)
	}
	table, err := ReadRelabeling(c.RelabelFile)
	if err != nil {
		return nil, flagError("write.relabel-file", c.RelabelFile, oneLine(err))
	}
	return table, nil
}

// ReadRelabeling reads a file with relabeling rules. Its errors don't contain the name of the file.
func ReadRelabeling(name string) (*relabeling.Table, error) {
	text, err := bounds.ReadFile(name, relabeling.MaxFile)
	if err != nil {
		return nil, err
	}
	return relabeling.Parse(text)
}
