package memory

import (
	"maps"
	"slices"
)

// Copy returns an engine with the current rows, like a backup of files.
func (e *Engine) Copy() *Engine {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c := &Engine{tables: maps.Clone(e.tables), drops: e.drops, now: e.now}
	for id, partitions := range c.tables {
		c.tables[id] = make([]*partition, len(partitions))
		for i, p := range partitions {
			// Rows and ranges are never modified in place, so copying the slices is sufficient.
			c.tables[id][i] = &partition{key: p.key, writes: p.writes, rows: slices.Clone(p.rows),
				ranges: slices.Clone(p.ranges)}
		}
	}
	return c
}
