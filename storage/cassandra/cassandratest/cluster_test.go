package cassandratest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// isAnswering reports whether a node responds with SUPPORTED to OPTIONS, the smallest request of the CQL protocol.
func isAnswering(address string) bool {
	const options, supported = 0x05, 0x06
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return false
	}
	defer connection.Close()
	if connection.SetDeadline(time.Now().Add(3*time.Second)) != nil {
		return false
	}
	if _, err := connection.Write([]byte{4, 0, 0, 1, options, 0, 0, 0, 0}); err != nil {
		return false
	}
	var header [9]byte
	_, err = connection.Read(header[:])
	return err == nil && header[4] == supported
}

// requireAnswers waits until a node responds. On a busy machine a node may hang for seconds.
func requireAnswers(t *testing.T, address string) {
	t.Helper()
	require.Eventually(t, func() bool { return isAnswering(address) }, answersWithin, 50*time.Millisecond, address)
}

// answersWithin is the max time that requireAnswers waits.
const answersWithin = 3 * time.Minute

func TestClusterEndsWithItsOwner(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: starts Cassandra")
	}
	t.Parallel()
	owner := exec.Command("sleep", "600")
	require.NoError(t, owner.Start())
	t.Cleanup(func() { _ = owner.Process.Kill() }) // it has exited already unless the test failed

	c, err := start(t.TempDir(), 1, Options{Password: true, CommitLog: "batch"}, owner.Process.Pid)
	if err != nil {
		require.ErrorIs(t, err, errUnavailable)
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, c.Wipe()) })
	requireAnswers(t, c.Hosts()[0])
	config, err := os.ReadFile(filepath.Join(c.Dir(), "node1", "cassandra.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(config), "authenticator: PasswordAuthenticator")
	require.Contains(t, string(config), "commitlog_sync: batch")

	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait() // it was killed
	require.Eventually(t, func() bool {
		_, err := os.Stat(c.Dir())
		return os.IsNotExist(err)
	}, answersWithin, 50*time.Millisecond)
	require.False(t, isAnswering(c.Hosts()[0]))
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	t.Setenv("JAVA_HOME", t.TempDir())
	_, err := Start(t.TempDir(), 1, Options{})
	require.ErrorIs(t, err, errUnavailable)
	require.ErrorContains(t, err, "install Java 17")
}

func TestHosts(t *testing.T) {
	t.Setenv(hostsVariable, " 10.0.0.1:9042, 10.0.0.2:9042,")
	require.Equal(t, []string{"10.0.0.1:9042", "10.0.0.2:9042"}, Hosts(t))
}

func TestKeyspace(t *testing.T) {
	require.Regexp(t, `^[a-z][a-z0-9_]{1,47}$`, keyspace(t), "what CQL takes without quotes")
	require.NotEqual(t, keyspace(t), keyspace(t))
}

func TestHostsSkips(t *testing.T) {
	t.Setenv(hostsVariable, "")
	probe := skipProbe{TB: t}
	require.Empty(t, Hosts(&probe))
	require.Contains(t, probe.said, "make test")
	require.Contains(t, probe.said, hostsVariable)
}

// skipProbe records the reason of a skip and continues, so that no test of a full run counts as skipped.
type skipProbe struct {
	testing.TB
	said string
}

func (p *skipProbe) Skipf(format string, args ...any) { p.said = fmt.Sprintf(format, args...) }
