package check

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// checkCounts checks the stored counts of a window's series. All of them must be readable, and the counts for the
// window's current state must be correct.
func (c *checker) checkCounts(tenant string, window int64) error {
	values, gaps := map[string][]byte{}, c.gaps
	for row, err := range c.scan(engine.Range{Table: engine.Catalog,
		Partition: format.CountsPartition(window, tenant)}) {
		if err != nil {
			return err
		}
		key := strings.Clone(row.Clustering[0].Text)
		if _, err := format.Describe(engine.Catalog, format.CountsPartition(window, tenant), row); err != nil ||
			format.CountsState(key) == "" {
			c.report("catalog: %s of tenant %q, counts %q: %v", c.windowName(window), tenant, key, err)
			gaps--
		}
		values[key] = bytes.Clone(row.Value)
	}
	if c.gaps != gaps || len(values) == 0 || !c.env.Counts.MayHaveCounts(window) {
		return nil
	}
	u, err := c.env.Counts.CountedWindow(c.ctx, tenant, window)
	if err != nil || u.Version == 0 {
		return err
	}
	// There may be only counts for another state, which are kept until the window is counted again.
	if head := format.CountsKey(u.Version, 0)[0].Text; values[head] == nil {
		return nil
	}
	if missing, err := c.unrolledSlots(tenant, window); err != nil || len(missing) > 0 {
		return err
	}
	want, err := c.env.Counts.Recount(c.ctx, u)
	if errors.Is(err, engine.ErrCorrupt) || errors.Is(err, counts.ErrStateChanged) ||
		errors.Is(err, format.ErrMalformedLabels) || errors.Is(err, format.ErrMalformedShards) {
		return nil // The cause is reported for its row, or by the next check.
	}
	if err != nil {
		return err
	}
	return c.compareCounts(u, values, want)
}

// compareCounts reports stored counts that differ from the result of counting.
func (c *checker) compareCounts(u *ended.OverWindow, values map[string][]byte, want []engine.Mutation) error {
	state := format.CountsKey(u.Version, 0)[0].Text[:16]
	first, last := c.env.Period.SlotOf(u.StartMS+1), c.env.Period.SlotOf(u.EndMS)
	for _, row := range want {
		key := row.Clustering[0].Text
		if have, ok := values[key]; !ok && format.IsCountsChange(key) {
			continue // The previous window was written to in the meantime.
		} else if !bytes.Equal(have, row.Value) {
			if err := c.reportUnlessStaged(first, last,
				"catalog: %s of tenant %q, counts %q: they don't match the series", c.windowName(u.Window),
				u.Tenant, key); err != nil {
				return err
			}
		}
	}
	for key := range values {
		wanted := slices.ContainsFunc(want, func(row engine.Mutation) bool { return row.Clustering[0].Text == key })
		if format.CountsState(key) == state && !format.IsCountsChange(key) && !wanted {
			c.report("catalog: %s of tenant %q, counts %q: unneeded rows", c.windowName(u.Window), u.Tenant, key)
		}
	}
	return nil
}
