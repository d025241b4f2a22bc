package backups

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

func namesIn(t *testing.T, folder string) (names []string) {
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestSnapshotsOfTheDead checks that making a claim removes the snapshots of killed processes and keeps the others.
func TestSnapshotsOfTheDead(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "snapshots")
	living, err := ClaimSnapshot(t.Context(), folder, "mine")
	require.NoError(t, err)
	for _, name := range []string{"dead", "mine", "by hand"} {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "dead"+claimSuffix), nil, 0o644))
	other, err := ClaimSnapshot(t.Context(), folder, "other")
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(folder, "dead"))
	require.NoError(t, other.Remove())
	require.DirExists(t, filepath.Join(folder, "mine"))
	names, err := UnclaimedSnapshots(folder)
	require.NoError(t, err)
	require.Equal(t, []string{"by hand"}, names)
	require.NoError(t, living.Remove())
	require.Equal(t, []string{"by hand"}, namesIn(t, folder))
}

// TestClaimsAtOneMoment makes claims concurrently. All must succeed, because making and removing claims exclude each
// other.
func TestClaimsAtOneMoment(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "snapshots")
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for j := range 5 {
				name := fmt.Sprintf("%d-%d", i, j)
				c, err := ClaimSnapshot(t.Context(), folder, name)
				if err == nil {
					err = errors.Join(os.Mkdir(filepath.Join(folder, name), 0o755), c.Remove())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	require.Empty(t, namesIn(t, folder))
}

// TestMakeClaimed checks that the snapshot is removed if the process that claimed it exits before or while it is made.
func TestMakeClaimed(t *testing.T) {
	t.Parallel()
	const name = "20261122T103000Z-1f"
	folder := filepath.Join(t.TempDir(), "snapshots")
	makeDir := func(dir string) error { return os.Mkdir(dir, 0o755) }
	none := func(string) error { panic("no snapshot is made") }
	require.ErrorIs(t, MakeClaimed(t.Context(), folder, name, none), errNoClaim)
	require.ErrorIs(t, MakeClaimed(t.Context(), folder, "../x", none), errNoClaim)

	c, err := ClaimSnapshot(t.Context(), folder, name)
	require.NoError(t, err)
	require.NoError(t, MakeClaimed(t.Context(), folder, name, makeDir))
	require.DirExists(t, filepath.Join(folder, name))
	require.NoError(t, c.Remove())
	require.Empty(t, namesIn(t, folder))

	// The process that claimed the snapshot is killed, or gives up, while the snapshot is made.
	for _, end := range []func(*Claim) error{func(c *Claim) error { return c.lock.Close() }, (*Claim).Remove} {
		c, err = ClaimSnapshot(t.Context(), folder, name)
		require.NoError(t, err)
		err = MakeClaimed(t.Context(), folder, name, func(dir string) error {
			return errors.Join(end(c), makeDir(dir))
		})
		require.ErrorContains(t, err, "the process that requested the snapshot has exited")
		require.Empty(t, namesIn(t, folder))
	}

	// The process that claimed the snapshot is killed after it was made. The next sweep removes the snapshot.
	c, err = ClaimSnapshot(t.Context(), folder, name)
	require.NoError(t, err)
	require.NoError(t, MakeClaimed(t.Context(), folder, name, makeDir))
	removed, err := RemoveAbandoned(t.Context(), folder)
	require.NoError(t, err)
	require.Empty(t, removed)
	require.NoError(t, c.lock.Close())
	removed, err = RemoveAbandoned(t.Context(), folder)
	require.NoError(t, err)
	require.Equal(t, []string{name}, removed)
	require.Empty(t, namesIn(t, folder))
}

// TestMakeUnclaimed checks that a complete snapshot is kept and an incomplete one is removed.
func TestMakeUnclaimed(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "snapshots")
	makeDir := func(dir string) error { return os.Mkdir(dir, 0o755) }
	require.NoError(t, MakeUnclaimed(t.Context(), folder, "a", makeDir))
	full := errors.New("disk full")
	require.ErrorIs(
		t, MakeUnclaimed(t.Context(), folder, "b", func(dir string) error { return errors.Join(makeDir(dir), full) }),
		full,
	)
	_, err := RemoveAbandoned(t.Context(), folder)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, namesIn(t, folder))
}

// TestSweepBesideUnclaimed checks that a claim isn't released while another process sweeps. That process may already
// have listed the claim; it would then lock it and remove the snapshot.
func TestSweepBesideUnclaimed(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "snapshots")
	var sweeping func() error
	made := make(chan error, 1)
	taken := make(chan struct{})
	go func() {
		made <- MakeUnclaimed(t.Context(), folder, "a", func(dir string) (err error) {
			defer close(taken)
			sweeping, err = WaitTurn(t.Context(), folder)
			return errors.Join(err, os.Mkdir(dir, 0o755))
		})
	}()
	<-taken
	select {
	case err := <-made:
		t.Error("the claim was removed while another process sweeps", err)
	case <-time.After(100 * time.Millisecond):
		removed, err := removeAbandoned(folder)
		require.NoError(t, err)
		require.Empty(t, removed)
		require.NoError(t, sweeping())
		require.NoError(t, <-made)
	}
	require.Equal(t, []string{"a"}, namesIn(t, folder))
}

// TestClaimOfAProcessThatIsKilled checks that a claim is held until its process is killed.
func TestClaimOfAProcessThatIsKilled(t *testing.T) {
	const variable = "CASSIA_TEST_CLAIMS_IN"
	if folder := os.Getenv(variable); folder != "" {
		_, err := ClaimSnapshot(t.Context(), folder, "a")
		require.NoError(t, err)
		fmt.Println("claimed")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	folder := filepath.Join(t.TempDir(), "snapshots")
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClaimOfAProcessThatIsKilled$")
	holder.Env = append(os.Environ(), variable+"="+folder)
	in, err := holder.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(folder, "a"), 0o755))
	removed, err := RemoveAbandoned(t.Context(), folder)
	require.NoError(t, err)
	require.Empty(t, removed)
	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait())
	removed, err = RemoveAbandoned(t.Context(), folder)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, removed)
	require.Empty(t, namesIn(t, folder))
}

// TestTurnEndsWithItsContext checks that WaitTurn stops waiting for another process when its context ends.
func TestTurnEndsWithItsContext(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "snapshots")
	done, err := WaitTurn(t.Context(), folder)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = WaitTurn(ctx, folder)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, done())
	_, err = WaitTurn(t.Context(), filepath.Join(folder, "nowhere", "snapshots"))
	require.ErrorIs(t, err, os.ErrNotExist, "the cause, at once")
	require.NotErrorIs(t, err, pebble.ErrLockHeld)
}
