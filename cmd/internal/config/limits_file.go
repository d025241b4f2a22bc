package config

import (
	"errors"
	"io"
	"os"

	"github.com/cassia-db/cassia/storage/tenant"
)

// LoadLimits reads the file of --limits.file; without one nobody has limits.
func (c *Config) LoadLimits() (*tenant.Table, error) {
	if c.LimitsFile == "" {
		return tenant.NewTable(tenant.Limits{}, nil), nil
	}
	text, err := readFile(c.LimitsFile, tenant.MaxLimitsFile)
	if err != nil {
		return nil, flagError("limits.file", c.LimitsFile, oneLine(err))
	}
	table, err := tenant.ParseLimits(text)
	if err != nil {
		return nil, flagError("limits.file", c.LimitsFile, oneLine(err))
	}
	return table, nil
}

// readFile reads a file and at most one byte more than limit, which its parser refuses.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		if path := (*os.PathError)(nil); errors.As(err, &path) {
			err = path.Err // The flag names the file.
		}
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}
