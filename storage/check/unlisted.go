package check

import "github.com/cassia-db/cassia/storage/format"

// unlisted reports the windows of a tenant that have rows and aren't listed. On engines without expiry, the listing is
// deleted together with the window's rows. With expiry, a failed write may be applied after a dropped window was
// unlisted: such rows are never shown, and they expire.
func (c *checker) unlisted(tenant string) error {
	found, err := c.env.Unlisted(c.ctx, tenant)
	for _, w := range found {
		c.report("windows: %s window %d of tenant %q, until %s, has rows but isn't listed, so queries don't find it",
			format.ResolutionOf(w), w, tenant, format.Instant(c.env.Period.WindowEnd(w)))
	}
	return err
}
