package main

import (
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/pebble"
)

// printVerified prints which files of the backup were verified, and which are damaged. It returns an error if the backup doesn't
// hold all of the store.
func (c *backupCommand) printVerified(stats pebble.BackupStats) error {
	if c.to.InBucket() {
		fmt.Printf("verified: %d files block by block; of the %d others, rows were when they were uploaded\n", stats.Verified, stats.Files-stats.Verified)
	} else {
		fmt.Printf("verified: %d files block by block, the %d others against their checksums\n", stats.Verified, stats.Files-stats.Verified)
	}
	for _, text := range slices.Concat(stats.Unreadable, stats.Rotten) {
		fmt.Println(text)
	}
	for _, text := range stats.Damaged {
		fmt.Println(text)
	}
	if len(stats.Damaged) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s already; the backup %s says so and no older one was removed; cassia check names what is missing, cassia restore --damaged --from=%s mends it from an older backup",
		c.dir, count(len(stats.Damaged), "part")+" damaged", stats.Name, &c.to)
}
