package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// run runs cassia with these arguments and returns its exit status.
func run(args []string, stderr io.Writer) int {
	status, restore := runCassia(args, stderr)
	restore()
	return status
}

// TestSignalsEndCommands checks that SIGINT and SIGTERM end commands that wait for an unresponsive server, with the
// exit status that shells report for the signal.
func TestSignalsEndCommands(t *testing.T) {
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	for name, args := range map[string][]string{
		"restore":     {"restore", "--from=s3://bucket/prefix?region=a&endpoint=" + server.URL, "--storage.path=" + filepath.Join(t.TempDir(), "data")},
		"healthcheck": {"healthcheck", "--url=" + server.URL, "--timeout=1h"},
		"doctor":      {"doctor", "--url=" + server.URL},
	} {
		for signal, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			var stderr bytes.Buffer
			ended := make(chan int, 1)
			go func() { ended <- run(args, &stderr) }()
			select {
			case <-asked:
			case code := <-ended:
				t.Fatalf("%s ended by itself with status %d: %s", name, code, stderr.String())
			}
			require.NoError(t, syscall.Kill(syscall.Getpid(), signal))
			require.Equal(t, status, <-ended, name)
			require.Equal(t, "cassia: interrupted\n", stderr.String(), name)
		}
	}
}
