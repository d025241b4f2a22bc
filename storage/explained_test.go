package storage

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
)

// TestRefusedDeletesAreExplained fails each read and each write of a delete and of a cleaning. The errors must name the
// request, the cause and the remedy, but no window or tenant.
func TestRefusedDeletesAreExplained(t *testing.T) {
	left, failed := -1, false
	cause := syscall.ENOSPC
	ts, _ := openFaultyStore(t, func(faultengine.Op) faultengine.Action {
		if left < 0 {
			return faultengine.Pass()
		}
		if left--; left >= 0 {
			return faultengine.Pass()
		}
		failed = true
		return faultengine.Fail(fmt.Errorf(
			"pebble: use: %w: %w", engine.ErrUnavailable, &os.PathError{Op: "open", Path: "1.sst", Err: cause},
		))
	}, func(o *Options) { o.seams.still = true })
	at := ts.now.UnixMilli() - format.HourMS
	for _, tenant := range []string{"ann", "bob"} {
		ts.write(tenant, upLabels, sample{at, 1})
	}
	const opening = "pebble: use: engine: unavailable: open 1.sst: "
	for _, c := range []struct {
		cause  syscall.Errno
		starts []string
		ends   string
		do     func() error
	}{
		{
			syscall.ENOSPC, []string{"storage: nothing was deleted: ", "storage: announcing the delete: ", "storage: writing the delete: "},
			"no space left on device; free disk space or inodes, then retry",
			func() error { return ts.Delete(t.Context(), "ann", at-10, at+10, equal("host", "a")) },
		},
		{
			syscall.EMFILE, []string{"storage: deleted samples still take disk space: "},
			"too many open files; raise the limit of open files (ulimit -n), then retry",
			func() error { return ts.CleanTombstones(t.Context(), "ann") },
		},
	} {
		cause = c.cause
		found := map[string]int{}
		for n := 0; ; n++ {
			left, failed = n, false
			err := c.do()
			left = -1
			if !failed {
				require.NoError(t, err)
				break
			}
			if err == nil { // A failed write of the observed uptime is repeated later.
				continue
			}
			require.ErrorIs(t, err, engine.ErrUnavailable)
			start, _, _ := strings.Cut(err.Error(), opening)
			require.Contains(t, c.starts, start)
			require.Equal(t, start+opening+c.ends, err.Error())
			found[start]++
		}
		require.Len(t, found, len(c.starts), "%v", found)
	}
	require.Equal(t, map[string][]sample{}, ts.all("ann"))
	require.Equal(t, []sample{{at, 1}}, ts.all("bob")[upLabels.String()])
}
