package memory

import (
	"maps"
	"slices"
)

// Copy returns an engine with the rows that there are now, as a backup of files has them.
func (e *Engine) Copy() *Engine {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c := &Engine{tables: maps.Clone(e.tables), drops: e.drops, now: e.now}
	for id, partitions := range c.tables {
		c.tables[id] = make([]*partition, len(partitions))
		for i, p := range partitions {
			// Rows and ranges never change in place: the slices do.
			c.tables[id][i] = &partition{key: p.key, writes: p.writes, rows: slices.Clone(p.rows), ranges: slices.Clone(p.ranges)}
		}
	}
	return c
}
