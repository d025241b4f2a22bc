package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// running is a server in another process.
type running struct {
	cassiatest.Server
	// stop stops the server gracefully. Further calls do nothing.
	stop func() error
	// log is the path of its log.
	log string
	pid int
}

// startServe runs cassia serve with these flags until stop is called or the test ends. The server doesn't store its own
// metrics, unless args contains --self-monitoring.
func startServe(t *testing.T, args ...string) running {
	t.Helper()
	return startServeAs(t, func(p promrig.Program) promrig.Program { return p }, args...)
}

// startServeAs is startServe with a function that changes the program before it is started.
func startServeAs(t *testing.T, as func(promrig.Program) promrig.Program, args ...string) running {
	t.Helper()
	address := cassiatest.FreeAddress(t)
	flags := append([]string{"serve", "--web.listen-address=" + address, "--web.enable-admin-api"}, args...)
	if !slices.Contains(args, "--self-monitoring") {
		flags = append(flags, "--no-self-monitoring")
	}
	log := filepath.Join(t.TempDir(), "cassia.log")
	process := start(t.Context(), t, as(promrig.Program{
		Name: "cassia", Path: builtCassia(t), Args: flags, Address: address, ReadyPath: "/-/ready", Log: log,
	}))
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		return process.Terminate(cassiatest.StopWithin)
	}
	t.Cleanup(func() { require.NoError(t, stop()) })
	return running{cassiatest.Server{URL: process.URL()}, stop, log, process.PID()}
}

// serverAt returns a server that was started elsewhere, without its stop function, log and process id.
func serverAt(url string) running { return running{Server: cassiatest.Server{URL: url}} }
