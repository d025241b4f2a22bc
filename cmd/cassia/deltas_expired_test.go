package main

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// truncateHourly truncates deltas at full hours, so that each delta is in a single 1h bucket.
func truncateHourly(list []sentDelta) (cut []sentDelta) {
	for _, d := range list {
		if hour := d.start.Truncate(time.Hour).Add(time.Hour); d.end.After(hour) {
			d.end = hour
		}
		if len(cut) == 0 || !d.start.Before(cut[len(cut)-1].end) {
			cut = append(cut, d)
		}
	}
	return cut
}

// TestDeltasAddOnceRawHasExpired checks that increase() is still the sum of the deltas when it is computed from
// rollups, after the retention of raw samples was shortened.
func TestDeltasAddOnceRawHasExpired(t *testing.T) {
	t.Parallel()
	rng, dir := rand.New(rand.NewPCG(soak.Seed(t), 0)), filepath.Join(t.TempDir(), "data")
	c := startDeltaServer(t, "--storage.path="+dir)
	base := time.Now().Truncate(time.Hour).Add(-5 * 24 * time.Hour)
	lists := map[string][]sentDelta{
		"dense": truncateHourly(drawDeltas(rng, base, 600, 0)), "sparse": truncateHourly(drawDeltas(rng, base, 60, 60)),
	}
	for name, list := range lists {
		c.send("shop", func(to pmetric.MetricSlice) { addDeltas(to, name, list) })
	}
	require.NoError(t, c.stop())

	eng, err := pebble.Open(dir, pebble.DefaultOptions())
	require.NoError(t, err)
	defer func() { require.NoError(t, eng.Close()) }()
	s := storagetest.Start(t, eng)
	require.NoError(t, s.SealAll(t.Context()))
	require.NoError(t, s.Close())
	s = storagetest.Start(t, eng, func(o *storage.Options) { o.Retention = 24 * time.Hour })
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Expire(t.Context())
	require.NoError(t, err)
	evaluator := promql.NewEngine(promql.DefaultOptions())
	defer func() { require.NoError(t, evaluator.Close()) }()
	for name, list := range lists {
		compared := 0
		for _, d := range list {
			if !d.end.Equal(d.end.Truncate(time.Hour)) {
				continue
			}
			from := d.end.Add(-time.Duration(1+rng.IntN(12)) * time.Hour)
			for query, want := range increasesOf(name, list, from, d.end) {
				for _, resolution := range []string{"auto", "5m", "1h"} {
					ctx, err := promql.WithResolution(tenant.NewContext(t.Context(), "shop"), resolution, 0)
					require.NoError(t, err)
					q, err := evaluator.NewInstantQuery(
						ctx, promql.NewQueryable(s), promengine.NewPrometheusQueryOpts(false, 0), query, d.end,
					)
					require.NoError(t, err)
					result := q.Exec(ctx)
					require.NoError(t, result.Err)
					v, err := result.Vector()
					require.NoError(t, err)
					require.Len(t, v, 1, "%s at %s: %v", query, d.end, result.Warnings)
					require.Equal(t, want, strconv.FormatFloat(v[0].F, 'f', -1, 64),
						"%s at %s by %s: %v", query, d.end, resolution, result.Warnings)
					for _, note := range result.Warnings {
						require.ErrorIs(t, note, annotations.PossibleNonCounterInfo, query)
					}
					q.Close()
					compared++
				}
			}
		}
		require.Positive(t, compared, name)
	}
}
