package pebble

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// TestEvents checks that Pebble's events about problems are counted and logged.
func TestEvents(t *testing.T) {
	var log bytes.Buffer
	e := newEvents()
	l := e.listener(slog.New(slog.NewTextHandler(&log, nil)))
	cause := errors.New("no room on the device")
	l.BackgroundError(cause)
	l.WriteStallBegin(pebbledb.WriteStallBeginInfo{Reason: "memtable count limit reached"})
	l.WriteStallEnd()
	l.LowDiskSpace(pebbledb.LowDiskSpaceInfo{AvailBytes: 12345, TotalBytes: 67890})
	e.diskSlow(vfs.DiskSlowInfo{})
	for _, line := range []string{
		"no room on the device", "memtable count limit reached", "writes are no longer stalled",
		"available_bytes=12345 total_bytes=67890",
	} {
		require.Contains(t, log.String(), line)
	}
	for _, c := range e.collectors() {
		want := 1.0
		if c == e.corruptions {
			want = 0
		}
		require.Equal(t, want, testutil.ToFloat64(c))
	}
	log.Reset()
	(&logger{log: slog.New(slog.NewTextHandler(&log, nil))}).Errorf("table %d: %v", 7, cause)
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "table 7: no room on the device")
	require.ErrorIs(t, firstLine{cause}, cause)
}
