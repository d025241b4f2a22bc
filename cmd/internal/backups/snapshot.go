package backups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/pebble"
)

// A snapshot that a command copies or reads has a claim, which is a file next to it:
//
//	snapshots ─┬─ 20261122T103000Z-1f…/           a snapshot
//	           ├─ 20261122T103000Z-1f….claim      its claim
//	           └─ 20261123T090000Z-07…/           a snapshot without a claim: it is kept until a user removes it
//	snapshots.lock                                held while claims are made or removed
//
// The process that uses the snapshot makes the claim before the snapshot and holds a lock on it. If the lock isn't
// held, the process was killed, and the claim and the snapshot are removed: by the server that uses the directory (at
// its start, once a minute, and after it has made a snapshot), and by each command that makes a claim. A snapshot that
// a user requested has a claim only while it is being made. If its process is killed in the meantime, the incomplete
// snapshot is therefore removed.
const claimSuffix = ".claim"

// claimableName matches valid names of snapshots.
var claimableName = regexp.MustCompile(`^\d{8}T\d{6}Z-[0-9a-z]+$`)

// maxTurn is the max time that a process waits for other processes that use a folder of snapshots.
const maxTurn = 10 * time.Minute

// errNoClaim means that a process requested a snapshot without a claim in this server's folder of snapshots.
var errNoClaim = errors.New(
	"the server found no request for this snapshot in its --storage.path; the command probably has a different " +
		"--storage.path",
)

// Claim is a claimed snapshot. The process removes it after use. If the process is killed, another process removes it.
type Claim struct {
	snapshot string
	lock     *pebble.FileLock
}

// ClaimSnapshot claims a snapshot that doesn't exist yet. It creates the folder if necessary and removes the snapshots
// of killed processes.
func ClaimSnapshot(ctx context.Context, folder, name string) (c *Claim, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if err := giveTo(filepath.Dir(folder), folder); err != nil {
		return nil, err
	}
	done, err := WaitTurn(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	_, _ = removeAbandoned(folder) // The server logs snapshots that can't be removed. They don't prevent a new one.
	c = &Claim{snapshot: filepath.Join(folder, name)}
	if c.lock, err = pebble.LockFile(c.snapshot + claimSuffix); err != nil {
		return nil, fmt.Errorf("claiming snapshot %s: %w", name, err)
	}
	if err := giveTo(folder, c.snapshot+claimSuffix); err != nil {
		return nil, errors.Join(err, c.lock.Remove())
	}
	return c, nil
}

// WaitTurn waits, for at most maxTurn, until no other process or goroutine makes or removes claims in a folder of
// snapshots. Other processes and goroutines then can't do so until done is called.
func WaitTurn(ctx context.Context, folder string) (done func() error, err error) {
	for since := time.Now(); ; {
		lock, err := pebble.LockFile(folder + ".lock")
		switch {
		case err == nil:
			if err := giveTo(filepath.Dir(folder), folder+".lock"); err != nil {
				return nil, errors.Join(err, lock.Close())
			}
			return lock.Close, nil
		case !errors.Is(err, pebble.ErrLockHeld):
			return nil, err
		case time.Since(since) > maxTurn:
			return nil, fmt.Errorf("another command is creating a snapshot in %s for %s: %w", folder, maxTurn, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// RemoveAbandoned removes the snapshots of killed processes and returns their names.
func RemoveAbandoned(ctx context.Context, folder string) (removed []string, err error) {
	if claims, err := filepath.Glob(filepath.Join(folder, "*"+claimSuffix)); len(claims) == 0 || err != nil {
		return nil, err
	}
	done, err := WaitTurn(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return removeAbandoned(folder)
}

// removeAbandoned is like RemoveAbandoned. The caller must hold the lock that WaitTurn acquires.
func removeAbandoned(folder string) (removed []string, err error) {
	claims, err := filepath.Glob(filepath.Join(folder, "*"+claimSuffix))
	if err != nil {
		return nil, err
	}
	for _, path := range claims {
		name := strings.TrimSuffix(filepath.Base(path), claimSuffix)
		gone, removeErr := removeIfAbandoned(folder, name)
		if err = errors.Join(err, removeErr); gone && removeErr == nil {
			removed = append(removed, name)
		}
	}
	return removed, err
}

// removeIfAbandoned removes a snapshot and its claim, unless a process holds the lock on the claim.
func removeIfAbandoned(folder, name string) (removed bool, err error) {
	c := &Claim{snapshot: filepath.Join(folder, name)}
	if c.lock, err = pebble.LockFile(c.snapshot + claimSuffix); errors.Is(err, pebble.ErrLockHeld) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("removing the snapshot of a process that has exited: %w", err)
	}
	return true, c.Remove()
}

// Remove removes the snapshot and the claim.
func (c *Claim) Remove() error {
	if err := os.RemoveAll(c.snapshot); err != nil {
		return errors.Join(err, c.lock.Close()) // Another process will remove both.
	}
	return c.lock.Remove()
}

// MakeClaimed calls make to make a snapshot that another process has claimed. If that process has exited in the
// meantime, MakeClaimed removes the snapshot.
func MakeClaimed(ctx context.Context, folder, name string, make func(dir string) error) error {
	dir := filepath.Join(folder, name)
	if !claimableName.MatchString(name) {
		return fmt.Errorf("invalid snapshot name %q: %w", name, errNoClaim)
	}
	if _, err := os.Stat(dir + claimSuffix); err != nil {
		return fmt.Errorf("%w (%w)", errNoClaim, err)
	}
	err := make(dir)
	done, turnErr := WaitTurn(context.WithoutCancel(ctx), folder)
	if turnErr != nil {
		return errors.Join(err, turnErr)
	}
	gone, removeErr := removeIfAbandoned(folder, name)
	if gone && err == nil {
		err = errors.New("the process that requested the snapshot has exited")
	} else if !gone { // The process may still be running: a claim of another user can't be locked.
		removeErr = nil
	}
	return errors.Join(err, removeErr, done())
}

// MakeUnclaimed calls make to make a snapshot that is kept. If make fails, MakeUnclaimed removes the incomplete
// snapshot. If this process is killed before make returns, a later sweep removes the incomplete snapshot.
func MakeUnclaimed(ctx context.Context, folder, name string, make func(dir string) error) error {
	c, err := ClaimSnapshot(ctx, folder, name)
	if err != nil {
		return err
	}
	if err := make(c.snapshot); err != nil {
		return errors.Join(err, c.Remove())
	}
	done, err := WaitTurn(ctx, folder) // A sweep that has already listed the claim would remove the snapshot.
	if err != nil {
		return errors.Join(err, c.Remove())
	}
	return errors.Join(c.lock.Remove(), done())
}

// UnclaimedSnapshots returns the names of the snapshots that are kept until a user removes them, the oldest first.
func UnclaimedSnapshots(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(folder, e.Name()+claimSuffix)); e.IsDir() && err != nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
