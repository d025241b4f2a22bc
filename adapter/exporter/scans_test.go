package exporter

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// Series are read in the order in which the store reads their chunks. In any other order, each series would read its
// whole group of chunks again.
func TestChunksOfManySeriesAreReadSeldom(t *testing.T) {
	var scans atomic.Int64
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && (op.Table == engine.Raw || op.Table == engine.RawPages) {
			scans.Add(1)
		}
		return faultengine.Pass()
	})
	s := storagetest.Open(t, eng, storagetest.FixedClock(testNow), storagetest.KeepForever)
	const series = 10_000
	fill(t, s, "default", func(f *filler) {
		for i := range series {
			f.float(f.series("__name__", "m", "i", fmt.Sprint(i)), nowMS-1000, 0, float64(i))
		}
	})
	require.NoError(t, s.SealAll(t.Context()))
	scans.Store(0)
	stats, err := Text(t.Context(), s, JSONLines, Options{Tenant: "default", MaxT: nowMS}, io.Discard)
	require.NoError(t, err)
	require.EqualValues(t, series, stats.Samples)
	require.Less(t, scans.Load(), int64(series/20))
}
