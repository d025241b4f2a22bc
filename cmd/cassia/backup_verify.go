package main

import (
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/pebble"
)

// printVerified prints the verified and the damaged files of the backup. It returns an error if the backup doesn't
// contain the whole store.
func (c *backupCommand) printVerified(stats pebble.BackupStats) error {
	if c.to.InBucket() {
		fmt.Fprintf(stdout, "verified: %s block by block; the other %d were verified when they were uploaded\n",
			countNoun(stats.Verified, "file"), stats.Files-stats.Verified)
	} else {
		fmt.Fprintf(stdout, "verified: %s block by block, and the other %d by checksum\n",
			countNoun(stats.Verified, "file"), stats.Files-stats.Verified)
	}
	for _, text := range slices.Concat(stats.Unreadable, stats.Rotten) {
		fmt.Fprintln(stdout, text)
	}
	for _, text := range stats.Damaged {
		fmt.Fprintln(stdout, text)
	}
	if len(stats.Damaged) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s, and the backup %s contains the damage; no older backup was removed. Run cassia check "+
		"to list the missing data, and cassia restore --damaged --from=%s to repair the store from an older backup",
		c.dir, countNoun(len(stats.Damaged), "part")+" damaged", stats.Name, &c.to)
}
