package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// running is a server that runs as a separate process.
type running struct {
	cassiatest.Server
	// stop stops the server in an orderly way. After the first call, it does nothing.
	stop func() error
	// log is the path of the log file.
	log string
	pid int
}

// startServe runs cassia serve with these flags until stop is called or the test ends. Self-monitoring is disabled
// unless a flag enables it.
func startServe(t *testing.T, args ...string) running {
	t.Helper()
	return startServeAs(t, func(p promrig.Program) promrig.Program { return p }, args...)
}

// startServeAs is like startServe, but it starts the program that as returns.
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

// serverAt returns a server that was started elsewhere.
func serverAt(url string) running { return running{Server: cassiatest.Server{URL: url}} }
