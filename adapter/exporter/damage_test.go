package exporter

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// An export skips and reports each unreadable chunk and contains all others.
func TestExportOfDamagedChunks(t *testing.T) {
	eng := memory.New()
	s := storagetest.Open(t, eng, storagetest.FixedClock(testNow))
	const perSlot, slots = 10, 3
	fill(t, s, "default", func(f *filler) {
		ref := f.series("__name__", "m")
		for slot := range int64(slots) {
			for i := range int64(perSlot) {
				f.float(ref, midnight+slot*2*3_600_000+(i+1)*60_000, 0, float64(i))
			}
		}
	})
	require.NoError(t, s.SealAll(t.Context()))
	damaged := false
	for _, batch := range eng.All() {
		if batch.Table != engine.Raw {
			continue
		}
		for i, m := range batch.Mutations {
			if m.Clustering[0].Int == format.KindChunk && !damaged {
				batch.Mutations[i].Value, batch.Mutations[i].Timestamp, damaged = []byte{0xff}, m.Timestamp+1, true
			}
		}
		require.NoError(t, eng.Write(t.Context(), []engine.Batch{batch}))
	}
	require.True(t, damaged)
	var named []error
	for _, warn := range []func(error){nil, func(err error) { named = append(named, err) }} {
		opts := everything()
		opts.Warn = warn
		var out bytes.Buffer
		stats, err := Text(t.Context(), s, OpenMetrics, opts, &out)
		require.NoError(t, err)
		require.EqualValues(t, (slots-1)*perSlot, stats.Samples)
		require.Equal(t, 1, stats.Corrupt)
	}
	require.Len(t, named, 1)
	require.ErrorContains(t, named[0], "corrupt raw row")
}
