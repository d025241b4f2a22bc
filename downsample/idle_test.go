package downsample

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

// idle returns a rig whose store has windows of raw rows and no work to do.
func idle(t *testing.T, tenants, days int) *rig {
	r := newRig(t, func(so *storage.Options, _ *Options) { so.Retention, so.Partitions, so.CacheBytes = 0, 1, 64<<10 })
	for d := range days {
		for i := range tenants {
			b := r.store.NewBatch(fmt.Sprintf("tenant-%03d", i))
			s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "up"))
			require.NoError(t, err)
			require.NoError(t, b.Float(s, testStart.Add(-time.Duration(d)*24*hour-9*hour).UnixMilli(), 0, 1))
			require.NoError(t, b.Commit(t.Context()))
		}
	}
	require.NoError(t, r.store.SealAll(t.Context()))
	for range 15 {
		r.round()
	}
	require.Zero(t, r.metric("uncounted_windows")+r.metric("uncompacted_windows")+r.metric("unrolled_windows"))
	require.EqualValues(t, tenants*(days-1), r.metric("counted_windows_total"), "today isn't over")
	return r
}

// TestIdleRoundsTakeLittle checks that rounds that list all windows allocate almost nothing per window that needs no
// work, with any content of the query cache.
func TestIdleRoundsTakeLittle(t *testing.T) {
	const tenants, days = 10, 80
	allocated := func(days int) float64 {
		r := idle(t, tenants, days)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const rounds = 5
		for range rounds {
			r.advance(thoroughInterval)
			r.loop.Round(t.Context())
		}
		runtime.ReadMemStats(&after)
		r.check()
		return float64(after.TotalAlloc-before.TotalAlloc) / rounds
	}
	few, many := allocated(days/4), allocated(days)
	each := (many - few) / (tenants * days * 3 / 4)
	t.Logf("%.0f bytes per round, and %.0f with four times as many windows: %.0f for each", few, many, each)
	require.Less(t, each, 400.0)
}
