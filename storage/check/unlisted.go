package check

import "github.com/cassia-db/cassia/storage/format"

// unlisted names the windows of a tenant that have rows and aren't listed. Where rows don't expire by themselves they have
// gone with their windows' rows. In a window that was dropped, a write that failed may be applied after the window was unlisted: nothing
// shows such rows, and they expire.
func (c *checker) unlisted(tenant string) error {
	found, err := c.env.Unlisted(c.ctx, tenant)
	for _, w := range found {
		c.report("windows: %s window %d of tenant %q, until %s, has rows but isn't listed, so queries don't find it",
			format.ResolutionOf(w), w, tenant, format.Instant(c.env.Period.WindowEnd(w)))
	}
	return err
}
