package check

import "github.com/cassia-db/cassia/storage/format"

// checkUnlisted reports the windows of a tenant that have rows although they aren't listed, except dropped windows. It
// finds such windows only on engines that expire rows, because other engines delete the rows together with the window.
// A failed write may be applied to a window after it was dropped and unlisted. Queries never return such rows, and they
// expire.
func (c *checker) checkUnlisted(tenant string) error {
	found, err := c.env.Unlisted(c.ctx, tenant)
	for _, w := range found {
		c.report("windows: %s %s of tenant %q has rows but isn't listed, so queries don't find it",
			format.ResolutionOf(w), c.windowName(w), tenant)
	}
	return err
}
