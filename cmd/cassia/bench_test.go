package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/bench"
)

// parseBench parses flags of cassia bench into its configuration.
func parseBench(t *testing.T, args ...string) *benchConfig {
	t.Helper()
	app := kingpin.New("cassia", "").Terminate(nil)
	c := &benchConfig{}
	declareBench(app.Command("bench", ""), c)
	_, err := app.Parse(append([]string{"bench"}, args...))
	require.NoError(t, err)
	return c
}

func TestBenchSaysWhatItMeasured(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // The server acknowledges samples without storing them.
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	log := filepath.Join(t.TempDir(), "acks")
	c := parseBench(t, "--url="+server.URL+"/write", "--series=100", "--duration=5m", "--ack-log="+log)
	var out bytes.Buffer
	require.NoError(t, c.run(t.Context(), time.Now(), &out, io.Discard))
	require.Contains(t, out.String(), "samples       2000 in")
	f, err := os.Open(log)
	require.NoError(t, err)
	defer f.Close()
	acks, err := bench.ReadAcks(f)
	require.NoError(t, err)
	require.Equal(t, int64(2000), acks.Count())
}

func TestBenchStart(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		args []string
		want time.Time
	}{
		"ends now":       {[]string{"--duration=2h"}, now.Add(-2 * time.Hour)},
		"in real time":   {[]string{"--duration=2h", "--speed=1"}, now},
		"a time ago":     {[]string{"--start=6h"}, now.Add(-6 * time.Hour)},
		"at a time":      {[]string{"--start=2026-01-01T00:00:00Z"}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		"ten times fast": {[]string{"--speed=10", "--start=1h"}, now.Add(-time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseBench(t, c.args...)
			require.NoError(t, got.setDefaults(now))
			require.Equal(t, c.want, time.UnixMilli(got.workload.StartMs).UTC())
		})
	}
	for _, bad := range []string{"--start=yesterday", "--interval=1us", "--series=0", "--duration=1s", "--churn=-1"} {
		require.Error(t, parseBench(t, bad).run(context.Background(), now, io.Discard, io.Discard), bad)
	}
}
