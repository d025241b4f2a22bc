//go:build !unix

package backups

// giveTo does nothing where files have no owner by number.
func giveTo(string, string) error { return nil }
