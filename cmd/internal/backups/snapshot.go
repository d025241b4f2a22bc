package backups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cassia-db/cassia/storage/pebble"
)

// claimSuffix is of a file beside a snapshot that a backup copies from. It is locked as long as the process that makes the backup lives.
const claimSuffix = ".backup"

// Claim is a snapshot that goes when its backup ends, however it ends.
type Claim struct {
	snapshot string
	lock     *pebble.FileLock
}

// ClaimSnapshot claims a snapshot in a folder of them. It removes those that backups claimed whose processes are gone.
func ClaimSnapshot(folder, name string) (*Claim, error) {
	c := &Claim{snapshot: filepath.Join(folder, name)}
	var err error
	if c.lock, err = pebble.LockFile(c.snapshot + claimSuffix); err != nil {
		return nil, fmt.Errorf("claiming snapshot %s: %w", name, err)
	}
	found, err := filepath.Glob(filepath.Join(folder, "*"+claimSuffix))
	if err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	for _, path := range found {
		left := &Claim{snapshot: strings.TrimSuffix(path, claimSuffix)}
		if left.snapshot == c.snapshot {
			continue
		}
		if left.lock, err = pebble.LockFile(path); err != nil {
			continue // Its process lives.
		}
		if err := left.Remove(); err != nil {
			return nil, errors.Join(err, c.Remove())
		}
	}
	return c, nil
}

// Remove removes the snapshot and the claim.
func (c *Claim) Remove() error {
	return errors.Join(os.RemoveAll(c.snapshot), c.lock.Remove())
}
