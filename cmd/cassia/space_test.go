package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

// diskUsage returns the disk usage of a directory in KiB, as reported by the du command.
func diskUsage(t *testing.T, dir string) int64 {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "du", "-sk", dir).Output()
	if err != nil {
		return -1 // A file was removed concurrently.
	}
	n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	require.NoError(t, err)
	return n
}

func inKiB(n int64) int64 { return (n + 1023) / 1024 }

// spaceMetrics returns the disk usage of the data directory and of its parts, as reported by /metrics.
func (r running) spaceMetrics(t *testing.T) (disk int64, of map[string]int64) {
	t.Helper()
	code, text := r.Get(t, "/metrics")
	require.Equal(t, http.StatusOK, code)
	of = map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		if name == "cassia_pebble_disk_bytes" {
			disk = int64(n)
		}
		if what, ok := strings.CutPrefix(name, `cassia_pebble_space_bytes{of="`); ok {
			of[strings.TrimSuffix(what, `"}`)] = int64(n)
		}
	}
	return disk, of
}

// healthSpace returns the disk usage shown on the storage page of the web interface.
func (r running) healthSpace(t *testing.T) (disk int64, of map[string]int64) {
	t.Helper()
	code, text := r.Get(t, "/api/v1/cassia/health")
	require.Equal(t, http.StatusOK, code, text)
	var answer struct {
		Data struct {
			Disk  struct{ Bytes int64 }
			Space map[string]int64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	return answer.Data.Disk.Bytes, answer.Data.Space
}

func sumOf(of map[string]int64) (sum int64) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// TestSpaceIsWhatDuShows compares the disk usage in /metrics, on the web page and in doctor with du. The four values
// are measured one after another, so the test repeats the measurement until the usage hasn't changed in the meantime.
func TestSpaceIsWhatDuShows(t *testing.T) {
	if _, err := exec.LookPath("du"); err != nil {
		t.Skip("there is no du")
	}
	dir := t.TempDir()
	r := startServe(t, "--storage.path="+dir)
	agree := func() (of map[string]int64, ok bool) {
		before := diskUsage(t, dir)
		disk, of := r.spaceMetrics(t)
		shown, ofShown := r.healthSpace(t)
		require.Equal(t, disk, sumOf(of), "the parts of /metrics are all there is")
		require.Equal(t, shown, sumOf(ofShown), "the parts of the page are all there is")
		return of, inKiB(disk) == before && inKiB(shown) == before && diskUsage(t, dir) == before
	}
	require.Eventually(
		t, func() bool { _, ok := agree(); return ok }, cassiatest.Patience, 50*time.Millisecond, "an empty store",
	)

	now := time.Now()
	for i := range 10 {
		r.Write(t, fmt.Sprint("metric_", i), now.Add(-24*time.Hour), float64(i))
	}
	code, text := r.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	require.Eventually(t, func() bool { // Staged rows are deleted after sealing; then all rows are written to files.
		of, ok := agree()
		return ok && of["raw"] > 0 && of["r5m"] > 0 && of["r1h"] > 0 && of["catalog"] > 0 && of["other"] > 0
	}, cassiatest.Patience, 50*time.Millisecond, "a sealed store")

	require.NoError(t, r.stop())
	require.Eventually(t, func() bool {
		facts, err := doctor.ReadDirectory(dir)
		require.NoError(t, err)
		found, _, err := runDoctor(t, now, month, "--storage.path="+dir)
		require.NoError(t, err)
		return inKiB(facts.Bytes) == diskUsage(t, dir) && listsParts(found, dir)
	}, cassiatest.Patience, 50*time.Millisecond, "the doctor")
}

// listsParts reports whether doctor lists the parts of a directory's disk usage and their sum is correct.
func listsParts(found []doctor.Finding, dir string) bool {
	total, parts := "", ""
	for _, f := range found {
		if rest, ok := strings.CutPrefix(f.What, dir+" uses "); ok {
			total, _, _ = strings.Cut(rest, ";")
		}
		if rest, ok := strings.CutPrefix(f.What, total+" on disk: "); ok && total != "" {
			parts = rest
		}
	}
	return strings.Contains(parts, "samples ") && strings.Contains(parts, "buckets of 5 minutes ") &&
		strings.Contains(parts, "buckets of an hour ")
}
