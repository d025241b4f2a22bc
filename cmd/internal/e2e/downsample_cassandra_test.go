package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/downsample"
)

// TestDownsampleBesideServers runs cassia downsample on a keyspace that two servers use. The servers must return the
// samples that the command seals, and report the owners of partitions.
func TestDownsampleBesideServers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Cassandra: leave -short out")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	const partitions = 4
	flags := cassiatest.OnCassandra(t)
	binary := builtCassia(t)
	serving := append(
		[]string{"--storage.slot=1h", "--storage.settle=1d", "--storage.partitions=4", "--no-self-monitoring"},
		flags...,
	)
	processes := startAll(ctx, t, promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), serving...),
		promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), serving...))
	waitOwned(ctx, t, partitions/2, processes...)
	samples := writeHours(ctx, t, processes[0].URL(), time.Now().Truncate(time.Hour).Add(-time.Hour), 6, 20)

	_, stderr, status := cassiatest.Command(t, binary, append([]string{"downsample"}, flags...)...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "--retention.raw is missing")
	args := append([]string{"downsample", "--retention.raw=30d"}, flags...)
	out, stderr, status := cassiatest.Command(t, binary, append(args, "--dry-run")...)
	require.Zero(t, status, stderr)
	require.Contains(t, out,
		"24 slots to seal, counted once per partition; 0 windows to roll up; 0 windows to compact; 0 windows to count: 24 steps")
	out, stderr, status = cassiatest.Command(t, binary, args...)
	require.Zero(t, status, stderr)
	require.Contains(t, out, fmt.Sprintf(
		"sealed 24 slots with %d samples (0 of them resealed for late samples); created the rollups of", samples,
	))
	out, stderr, status = cassiatest.Command(t, binary, args...)
	require.Zero(t, status, stderr)
	require.Equal(t, "nothing to do\n", out)

	for i, p := range processes {
		var answer promrig.Answer
		require.NoError(t, patiently(func() (err error) {
			answer, err = promrig.API{URL: p.URL()}.Query(ctx, `sum(count_over_time(m[1d]))`, time.Now())
			return err
		}))
		require.Len(t, answer.Series, 1)
		require.Contains(t, fmt.Sprint(answer.Series), fmt.Sprint(samples))
		requireOwners(ctx, t, p.URL(), processes[i].Address, partitions)
	}
	out, stderr, status = cassiatest.Command(t, binary, append([]string{"check"}, flags...)...)
	require.Zero(t, status, out+stderr)
	require.Contains(t, out, fmt.Sprintf("with %d samples, ", samples))
	out, stderr, status = cassiatest.Command(t, binary, append([]string{"retention"}, flags...)...)
	require.Zero(t, status, stderr)
	require.Contains(t, out,
		"on Cassandra, rows keep the TTL they were written with: a new retention applies only to samples sealed from now on")
}

// requireOwners requires that a process reports the owner of every partition and which partitions are its own, and that
// each of the two processes owns half of them.
func requireOwners(ctx context.Context, t *testing.T, url, address string, partitions int) {
	t.Helper()
	port := address[strings.LastIndex(address, ":"):]
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		text, err := get(ctx, url+"/-/downsample")
		require.NoError(t, err)
		var s downsample.Status
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		require.Len(t, s.Partitions, partitions)
		owners, mine := map[string]int{}, 0
		for _, p := range s.Partitions {
			owners[p.Owner]++
			require.Equal(t, p.Mine, strings.HasSuffix(p.Owner, port),
				"partition %d of %s at %s", p.Partition, p.Owner, address)
			if p.Mine {
				mine++
			}
			require.Equal(t, p.Owner == "", p.Since.IsZero(), "partition %d of %q", p.Partition, p.Owner)
		}
		if len(owners) == 2 && mine == partitions/2 {
			return
		}
		// Retry, because one of the processes may not have sent a heartbeat for a while.
		require.Less(t, time.Since(began), cassiatest.Patience, "%v, and %d are its own", owners, mine)
	}
}
