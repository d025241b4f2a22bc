package cassiatest

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// FreeAddress returns a loopback address with a free port.
func FreeAddress(t *testing.T) string {
	out, err := promrig.FreeAddress()
	require.NoError(t, err)
	return out
}

// Binary returns the path of a program, see promrig.Binary. If the program is missing, it skips the test.
func Binary(t testing.TB, variable, name string) string {
	t.Helper()
	path, err := promrig.Binary(variable, name)
	if err != nil {
		t.Skip(err)
	}
	return path
}

// ReadyWithin is the max time for a program to start, and StopWithin is the max time to stop. Patience is the max time
// that tests wait for any other short operation. They are long enough for a busy machine.
const (
	ReadyWithin = 3 * time.Minute
	StopWithin  = 2 * time.Minute
	Patience    = 3 * time.Minute
)

// OnCassandra returns flags for processes that share one keyspace, which is only used by this test.
func OnCassandra(t *testing.T) []string {
	hosts := cassandratest.Hosts(t)
	return []string{
		"--storage.engine=cassandra", "--cassandra.hosts=" + strings.Join(hosts, ","),
		"--cassandra.keyspace=" + cassandratest.OwnKeyspace(t, hosts),
	}
}

// Command runs the binary. It returns its standard output, its standard error and its exit status.
func Command(t *testing.T, binary string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
