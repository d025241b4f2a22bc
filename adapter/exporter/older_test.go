package exporter

import (
	"bytes"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storetest"
)

// Of times whose samples have expired, as many are made of rollups, in text and in blocks; or none, if so asked.
func TestExportOfExpiredSamples(t *testing.T) {
	const day = 24 * time.Hour
	var samples chunk.Samples
	for i := range 10 * 24 * 60 {
		samples.AppendFloat(nowMS-10*dayMS+int64(i+1)*60_000, 0, float64(3*i))
	}
	clock := testNow.Add(-10 * day)
	o := storage.DefaultOptions()
	o.Retention, o.Retention5m, o.Now = 2*day, 6*day, func() time.Time { return clock }
	s := storetest.Open(t, memory.New(), o)
	clock = testNow
	_, err := s.Import(t.Context(), "default", []storage.ImportedSeries{{Labels: labels.FromStrings("__name__", "c"), Samples: &samples}})
	require.NoError(t, err)

	var out bytes.Buffer
	stats, err := Text(t.Context(), s, OpenMetrics, everything(), &out)
	require.NoError(t, err)
	require.Equal(t, int64(10*24*60), stats.Samples)
	require.InDelta(t, 8*24*60, stats.Made, 24*60, "rollups are left of at most eight days")
	got := held{}
	inOpenMetrics(t, out.Bytes(), got)
	require.Len(t, got[`{__name__="c"}`], 10*24*60)
	want := held{}
	for i, at := range samples.T { // A counter that rises evenly comes back as it was.
		want.float(labels.FromStrings("__name__", "c"), at, 0, samples.V[i])
	}
	same(t, want, got)

	dir := t.TempDir() + "/blocks"
	_, err = Blocks(t.Context(), s, everything(), newFolder(t, dir))
	require.NoError(t, err)
	same(t, want, inBlocks(t, dir))

	left := everything()
	left.LeaveRollups = true
	out.Reset()
	stats, err = Text(t.Context(), s, OpenMetrics, left, &out)
	require.NoError(t, err)
	require.Zero(t, stats.Made)
	require.Less(t, stats.Samples, int64(3*24*60+1))
	left.MaxT = nowMS - 4*dayMS
	_, err = Text(t.Context(), s, OpenMetrics, left, &out)
	require.ErrorIs(t, err, ErrNothing)
}
