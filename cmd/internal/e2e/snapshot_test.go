package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
)

// TestSnapshotOfAKeyspace takes a snapshot of a keyspace under load as described in the manual's page for operators,
// with its script, and loads it into another keyspace. The samples that a Cassia server reads there must be identical,
// bit by bit, to the samples acknowledged before the snapshot.
func TestSnapshotOfAKeyspace(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary on a real Cassandra: leave -short out")
	}
	t.Parallel()
	cluster := cassandratest.Shared(t)
	binary := builtCassia(t)
	hosts := "--cassandra.hosts=" + strings.Join(cluster.Hosts(), ",")
	from, into := cassandratest.OwnKeyspace(t, cluster.Hosts()), cassandratest.OwnKeyspace(t, cluster.Hosts())
	on := func(keyspace string) []string {
		return []string{
			"--storage.engine=cassandra", hosts, "--cassandra.keyspace=" + keyspace,
			"--storage.slot=1h", "--storage.settle=1s", "--storage.partitions=4", "--retention.raw=90d",
			"--no-self-monitoring",
		}
	}
	k := newKilled(t, sharedLoads(t)[:2], promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), on(from)...))
	k.processes = []*promrig.Process{start(k.ctx, t, k.programs[0])}
	stopLoads := k.startLoads()
	more := func() {
		for _, l := range k.loads {
			before := l.acks.Count()
			require.Eventually(
				t, func() bool { return l.acks.Count() > before+500 }, cassiatest.Patience, 10*time.Millisecond,
			)
		}
	}
	more()
	require.NoError(t, promrig.PostEmpty(k.ctx, k.processes[0].URL()+"/-/seal"))
	more()
	known := k.known()

	saved := filepath.Join(t.TempDir(), "saved")
	run := func(keyspace string, args ...string) (string, error) {
		c := exec.CommandContext(k.ctx, filepath.Join("..", "..", "..", "docker", "cassandra", "snapshot"), args...)
		local, err := filepath.Abs(filepath.Join("..", "..", "..", "docker", "cassandra", "local"))
		require.NoError(t, err)
		c.Env = append(os.Environ(), "CASSANDRA_DIR="+cluster.Dir(),
			"CASSANDRA_DATA="+filepath.Join(cluster.Dir(), "node1", "data", "data"), "KEYSPACE="+keyspace,
			"NODETOOL="+local+" nodetool 1")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	sealed := make(chan error, 1)
	saving, done := context.WithCancel(k.ctx)
	go func() { // Rows deleted from the staging log in the meantime must be in another table.
		for saving.Err() == nil {
			if err := promrig.PostEmpty(k.ctx, k.processes[0].URL()+"/-/seal"); err != nil {
				sealed <- err
				return
			}
		}
		sealed <- nil
	}()
	out, err := run(from, "save", saved)
	done()
	require.NoError(t, err, out)
	require.NoError(t, <-sealed)
	k.stop(0)
	stopLoads()
	out, err = run(from, "load", saved)
	require.ErrorContains(t, err, "exit status 1")
	require.Contains(t, out, "has rows already")

	var schema bytes.Buffer
	c := exec.CommandContext(k.ctx, binary, "schema", "print", hosts, "--cassandra.keyspace="+into,
		"--cassandra.replication=1", "--retention.raw=90d")
	c.Stdout = &schema
	require.NoError(t, c.Run())
	require.NoError(t, cluster.Query(statements(schema.String())...))
	out, err = run(into, "load", saved)
	require.NoError(t, err, out)
	check := exec.CommandContext(
		k.ctx, binary, "check", "--storage.engine=cassandra", hosts, "--cassandra.keyspace="+into,
	)
	text, err := check.CombinedOutput()
	// Tables are copied one after another. If samples that were staged after the staging log was copied are sealed in
	// the meantime, the copy may contain their raw chunks without the rollups.
	require.Regexp(t, `: \d+ problems\n`, string(text), "%v", err)
	left := strings.Split(strings.TrimSpace(halfSealed.ReplaceAllString(string(text), "")), "\n")
	require.LessOrEqual(t, len(left), 2, "more than the last line, and that of the error: %s", text)
	known.programs = []promrig.Program{promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), on(into)...)}
	known.processes = []*promrig.Process{start(k.ctx, t, known.programs[0])}
	known.verify(0, "loaded into another keyspace")
	known.stop(0)
}

// halfSealed matches the lines of cassia check about rollups with missing samples.
var halfSealed = regexp.MustCompile(
	`(?m)^(r5m: .*(version \d+ doesn't match the \d+ raw chunks|the rollup of \d+ chunks is missing)|r1h: .*doesn't match the 5m rollups of the day)\n`,
)

// statements returns the statements in a CQL text, without comments.
func statements(text string) (out []string) {
	var code strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			code.WriteString(line)
		}
	}
	for s := range strings.SplitSeq(code.String(), ";") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// aNotingNodetool creates a folder with empty tables and a fake nodetool. The nodetool prints the given status and
// records its calls. run runs the script with both. calls returns, for each snapshot, the list of its tables.
func aNotingNodetool(t *testing.T, status string) (run func(args ...string) (string, error), calls func() []string) {
	dir := t.TempDir()
	for _, table := range engine.Tables {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "data", "cassia", table.Name+"-1"), 0o755))
	}
	nodetool, noted := filepath.Join(dir, "nodetool"), filepath.Join(dir, "calls")
	require.NoError(t, os.WriteFile(nodetool, []byte(
		"#!/bin/sh\ntest $1 != snapshot || echo \"$5\" >>"+noted+"\ntest $1 != status || cat <<'E'\n"+status+"E\n",
	), 0o755))
	run = func(args ...string) (string, error) {
		args[1] = filepath.Join(dir, args[1])
		c := exec.CommandContext(
			t.Context(), filepath.Join("..", "..", "..", "docker", "cassandra", "snapshot"), args...,
		)
		c.Env = append(
			os.Environ(), "CASSANDRA_DATA="+filepath.Join(dir, "data"), "NODETOOL="+nodetool, "KEYSPACE=cassia",
		)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	return run, func() []string {
		text, err := os.ReadFile(noted)
		if os.IsNotExist(err) {
			return nil
		}
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// oneNode is the output of nodetool status for a single node. twoMore contains the lines of two more nodes.
const (
	oneNode = "Datacenter: datacenter1\n=======================\nStatus=Up/Down\n|/ State=Normal/Leaving/Joining/Moving\n" +
		"--  Address    Load       Tokens  Owns (effective)  Host ID                               Rack\n" +
		"UN  127.0.0.1  98.48 KiB  16      100.0%            7f1c1ad1-0f4c-4e1e-8d0a-1a5f6c8b2e01  rack1\n"
	twoMore = "UN  127.0.0.2  98.48 KiB  16      100.0%            7f1c1ad1-0f4c-4e1e-8d0a-1a5f6c8b2e02  rack1\n" +
		"DN  127.0.0.3  98.48 KiB  16      100.0%            7f1c1ad1-0f4c-4e1e-8d0a-1a5f6c8b2e03  rack1\n"
)

// TestSnapshotOfSeveralNodes runs the script's save on one of three nodes without first running the preparing commands
// on all of them. Nothing may be copied.
func TestSnapshotOfSeveralNodes(t *testing.T) {
	run, calls := aNotingNodetool(t, oneNode+twoMore)
	out, err := run("save", "saved")
	require.Error(t, err)
	require.Contains(t, out, "the cluster has 3 nodes: run begin on every node, then pages on every node, then save")
	require.Empty(t, calls())
	_, err = run("begin", "saved")
	require.NoError(t, err)
	out, err = run("save", "saved")
	require.Error(t, err, "pages weren't copied on every node")
	require.Contains(t, out, "3 nodes")
	_, err = run("pages", "saved")
	require.NoError(t, err)
	out, err = run("save", "saved")
	require.NoError(t, err, out)

	run, calls = aNotingNodetool(t, "")
	out, err = run("save", "saved")
	require.Error(t, err, "nodetool fails")
	require.Contains(t, out, "nodetool status lists no nodes")
	require.Empty(t, calls())
}

// TestOrderOfASnapshot runs the script with a nodetool that records its calls. If rows move from one table to another,
// the destination table must be copied after the source table.
func TestOrderOfASnapshot(t *testing.T) {
	run, calls := aNotingNodetool(t, oneNode)
	out, err := run("save", "saved")
	require.NoError(t, err, out)
	taken := map[string]int{}
	for call, line := range calls() {
		for _, table := range strings.Split(line, ",") {
			taken[strings.TrimPrefix(table, "cassia.")] = call
		}
	}
	require.Len(t, taken, len(engine.Tables))
	for _, rows := range []string{"raw", "r5m", "r1h"} {
		require.Less(t, taken["stage"], taken[rows+"_pages"])
		require.Less(t, taken[rows+"_pages"], taken[rows])
		require.Less(t, taken[rows+"_pages"], taken["sealed"])
	}
}
