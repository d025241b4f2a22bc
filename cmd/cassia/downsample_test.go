package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/downsample"
)

// TestDownsamplingStatus checks the state of sealing that a server returns after its first pass.
func TestDownsamplingStatus(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir())
	r.Write(t, "late", time.Now().Add(-10*time.Hour), 1)
	var s downsample.Status
	require.Eventually(t, func() bool {
		code, text := r.Get(t, "/-/downsample")
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		return s.Rounds > 0
	}, time.Minute, 10*time.Millisecond)
	require.Len(t, s.Partitions, 4)
	require.True(t, s.Partitions[3].Mine)
	require.Equal(t, 0.5, s.Share)
	require.False(t, s.Alarm)
	require.Equal(t, (84 * time.Hour).Seconds(), s.LagLimitSeconds)
	_, metrics := r.Get(t, "/metrics")
	require.Contains(t, metrics, "\ncassia_downsample_partitions 4\n")
	require.NoError(t, r.stop())
	require.NotContains(t, r.log.String(), "level=ERROR")
}

func TestDownsampleSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--start=yesterday"}, "--start=yesterday: must be a time such as 2027-01-01T00:00:00Z or 1798761600"},
		{[]string{"--start=2000", "--end=1000"}, "--start=2000 --end=1000: the end must not be before the start"},
		{[]string{"--storage.settle=soon"}, "--storage.settle=soon: must be a duration"},
		{[]string{"--retention.raw=1h"}, "--retention.raw=1h: must be at least 1d"},
		{[]string{"--storage.engine=cassandra"}, "--retention.raw is missing; set it, --retention.5m, --retention.1h and --retention.file to the values that the servers use, because they become the TTL of the rows written"},
		{[]string{"--storage.path=" + t.TempDir() + "/none"}, "no Cassia data found"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(append([]string{"downsample"}, c.args...), &stderr), c.args)
		require.Contains(t, stderr.String(), c.want)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line")
	}
}

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		done downsample.Done
		took time.Duration
		want string
	}{
		{downsample.Done{All: 200, Now: "sealing"}, 0, "[........................]   0%  0 of 200: sealing"},
		{downsample.Done{Steps: 50, All: 200, Now: "sealing"}, 10 * time.Second, "[######..................]  25%  50 of 200, 5/s, 30s left: sealing"},
		{downsample.Done{Steps: 1, All: 20000, Failed: 1, Now: "x"}, time.Second, "[........................]   0%  1 of 20000, 1/s, 5h33m0s left, 1 failed: x"},
		{downsample.Done{Steps: 199, All: 200, Now: "x"}, 19900 * time.Millisecond, "[#######################.]  99%  199 of 200, 10/s, 100ms left: x"},
		{downsample.Done{Steps: 200, All: 200, Now: "x"}, time.Second, "[########################] 100%  200 of 200, 200/s, 0s left: x"},
	} {
		require.Equal(
			t, c.want, drawBar(float64(c.done.Steps)/float64(max(1, c.done.All)))+" "+progressLine(c.done, c.took),
		)
	}
}

// TestProgressBar checks that progress is shown as a bar on a terminal and as lines elsewhere, and how often it is
// shown.
func TestProgressBar(t *testing.T) {
	for terminal, want := range map[bool]struct{ writes, lines int }{true: {40, 0}, false: {2, 2}} {
		var b bytes.Buffer
		writes := 0
		now := time.Unix(0, 0)
		p := &progressBar{
			w: writerFunc(func(text []byte) { writes++; b.Write(text) }), isTerminal: terminal,
			now: func() time.Time { return now }, began: now, shown: now,
		}
		for i := range 400 {
			now = now.Add(50 * time.Millisecond)
			if i%5 == 0 || i%5 == 4 { // after 50 or 200 ms
				p.update(downsample.Done{Steps: i, All: 400})
			}
		}
		require.Equal(t, want.lines, strings.Count(b.String(), "\n"), terminal)
		require.InDelta(t, want.writes, writes, float64(want.writes)*1.1, terminal)
		p.clearLine()
		require.Equal(t, terminal, strings.HasSuffix(b.String(), "\r\x1b[K"))
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	require.False(t, newProgressBar(f, time.Now).isTerminal)
	require.NoError(t, f.Close())
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
