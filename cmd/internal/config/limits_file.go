package config

import (
	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/tenant"
)

// LoadLimits reads the file set by --limits.file. If the flag isn't set, there are no limits.
func (c *Config) LoadLimits() (*tenant.Table, error) {
	if c.LimitsFile == "" {
		return tenant.NewTable(tenant.Limits{}, nil), nil
	}
	text, err := bounds.ReadFile(c.LimitsFile, tenant.MaxLimitsFile)
	if err != nil {
		return nil, flagError("limits.file", c.LimitsFile, oneLine(err))
	}
	table, err := tenant.ParseLimits(text)
	if err != nil {
		return nil, flagError("limits.file", c.LimitsFile, oneLine(err))
	}
	return table, nil
}
