package cassandratest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// errUnavailable means that Cassandra can't be started on this machine. The error that wraps it names the missing part.
var errUnavailable = errors.New("cassandratest: can't start Cassandra")

// ErrCommand means that docker/cassandra/local failed. The error that wraps it has the output.
var ErrCommand = errors.New("cassandratest: docker/cassandra/local")

// Options configure the nodes of a Cluster. The zero value suits most tests.
type Options struct {
	// CommitLog determines when a write is on the disk. With "group" (the default) and "batch", the write is on the
	// disk before it is acknowledged. With "periodic", it is on the disk up to 10 s later.
	CommitLog string
	// Password makes nodes require a login with Username and Password.
	Password bool
	// Heap is the heap size of each node, as in Java's -Xmx. Default: 1G for a single node, else 700M.
	Heap string
	// Config has additional lines for cassandra.yaml.
	Config string
	// Measured configures Java as in production, for benchmarks: code is fully compiled and Cassandra's own assertions
	// are checked. Otherwise nodes start in two thirds of the time, and then work more slowly.
	Measured bool
}

// Username and Password are the login in a cluster with Options.Password.
const (
	Username = "cassandra"
	Password = "cassandra"
)

// Cluster is a cluster of nodes on this machine, numbered from 1. Its methods may be called concurrently, except for
// the same node.
type Cluster struct {
	dir    string
	script string
	hosts  []string
	env    []string
}

// sharedDirVariable is the environment variable with the folder of the node that tests share, if
// docker/cassandra/with-node started it.
const sharedDirVariable = "CASSANDRA_SHARED_DIR"

// Shared returns the node that tests share, for operations on its machine. If tests share a cluster on another machine,
// it starts a node for this test.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	dir := os.Getenv(sharedDirVariable)
	if dir == "" {
		return StartCluster(t, 1, Options{})
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{
		dir: dir, script: filepath.Join(root, "docker", "cassandra", "local"), hosts: Hosts(t),
		env: append(os.Environ(), "CASSANDRA_DIR="+dir),
	}
}

// StartCluster starts a cluster for one test, and stops it and removes its data when the test ends. It skips the test
// in short mode, or if Java or Maven are missing.
func StartCluster(t testing.TB, nodes int, o Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped in short mode: starts Cassandra")
	}
	c, err := Start(t.TempDir(), nodes, o)
	if errors.Is(err, errUnavailable) {
		t.Skipf("SKIPPED, NO CASSANDRA: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the nodes complained of:\n%s", c.complaints())
		}
		if err := c.Wipe(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Start starts nodes with their data below dir, and waits until all of them are connected to each other and accept CQL.
// The caller must call Wipe at the end. If this process is killed before that, the nodes stop and their data is
// removed. The working directory must be in the repository. Start returns errUnavailable or ErrCommand.
func Start(dir string, nodes int, o Options) (*Cluster, error) {
	return start(dir, nodes, o, os.Getpid())
}

// start starts nodes that stop when the process with the id owner ends.
func start(dir string, nodes int, o Options, owner int) (*Cluster, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(filepath.Join(dir, "cassandra"))
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, script: filepath.Join(root, "docker", "cassandra", "local")}
	c.env = append(os.Environ(), "CASSANDRA_DIR="+dir, "CASSANDRA_PORTS=free", "CASSANDRA_OWNER="+strconv.Itoa(owner),
		"CASSANDRA_COMMITLOG="+o.CommitLog, "CASSANDRA_HEAP="+o.Heap, "CASSANDRA_CONFIG="+o.Config)
	if o.Password {
		c.env = append(c.env, "CASSANDRA_AUTH=password")
	}
	if !o.Measured {
		c.env = append(c.env, "CASSANDRA_JAVA_FLAGS=-XX:TieredStopAtLevel=1 -da")
	}
	if _, err := c.run("check"); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	hosts, err := c.run("start", strconv.Itoa(nodes))
	if err != nil {
		return nil, errors.Join(err, c.Wipe())
	}
	c.hosts = strings.Split(strings.TrimSpace(hosts), ",")
	if o.Password {
		if err := c.awaitLogin(); err != nil {
			return nil, errors.Join(err, c.Wipe())
		}
	}
	return c, nil
}

// repository returns the repository's root: the nearest folder with a go.mod, from the working directory upwards.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("cassandratest: the working directory is in no module")
		}
		dir = up
	}
}

// run runs the script and returns its output.
func (c *Cluster) run(args ...string) (string, error) {
	var out, complaints bytes.Buffer
	cmd := exec.Command(c.script, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf(
			"%w %s: %w: %s", ErrCommand, strings.Join(args, " "), err, bytes.TrimSpace(complaints.Bytes()),
		)
	}
	return out.String(), nil
}

// runCommand runs a command of the script for node n.
func (c *Cluster) runCommand(command string, n int) error {
	_, err := c.run(command, strconv.Itoa(n))
	return err
}

// Hosts returns the nodes' addresses as host:port, in the order of their numbers.
func (c *Cluster) Hosts() []string { return append([]string(nil), c.hosts...) }

// Dir returns the folder of the nodes' files: node1/system.log, node1/data, and so on.
func (c *Cluster) Dir() string { return c.dir }

// Kill kills node n immediately, like kill -9, and returns when its ports are free.
func (c *Cluster) Kill(n int) error { return c.runCommand("kill", n) }

// Revive restarts node n and waits until it accepts CQL and the other running nodes see it as up.
func (c *Cluster) Revive(n int) error { return c.runCommand("revive", n) }

// Pause suspends node n's process. It stops responding, and its connections stay open.
func (c *Cluster) Pause(n int) error { return c.runCommand("pause", n) }

// Continue resumes node n after Pause.
func (c *Cluster) Continue(n int) error { return c.runCommand("continue", n) }

// Stop stops all nodes properly. Their data is kept, and Revive restarts them.
func (c *Cluster) Stop() error {
	_, err := c.run("stop")
	return err
}

// Wipe kills all nodes and removes their data. It may be called more than once.
func (c *Cluster) Wipe() error {
	_, err := c.run("wipe")
	return err
}

// CPUSeconds returns the user and system CPU time of the running nodes' processes since each was started.
func (c *Cluster) CPUSeconds() (float64, error) {
	out, err := c.run("cpu")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}

// DiskBytes returns the disk usage of a keyspace's files on all nodes, without memtables and commit logs: flush first.
func (c *Cluster) DiskBytes(keyspace string) (int64, error) {
	out, err := c.run("disk", keyspace)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
}

// Nodetool runs Cassandra's nodetool on node n and returns its output.
func (c *Cluster) Nodetool(n int, args ...string) (string, error) {
	return c.run(append([]string{"nodetool", strconv.Itoa(n)}, args...)...)
}

// complaints returns the warnings and errors at the ends of the nodes' logs.
func (c *Cluster) complaints() string {
	var out strings.Builder
	for n := range len(c.hosts) {
		text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("node%d", n+1), "system.log"))
		if err != nil {
			fmt.Fprintln(&out, err)
			continue
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " ERROR ") || strings.Contains(line, " WARN ") {
				lines = append(lines, fmt.Sprintf("node %d: %s", n+1, line))
			}
		}
		out.WriteString(strings.Join(lines[max(0, len(lines)-20):], ""))
	}
	return out.String()
}
