package storage

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// counted returns how many samples the buckets of 5 minutes count.
func (m *clockMachine) counted() (n int) {
	m.r.t.Helper()
	list, err := m.Select(m.r.t.Context(), query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: ofMetric(), Resolution: rollup.FiveMinutes, Columns: rollup.AllColumns,
	})
	require.NoError(m.r.t, err)
	for _, s := range list {
		var b rollup.Buckets
		require.NoError(m.r.t, s.Buckets(&b, &query.BucketBuffers{}))
		for _, count := range b.Count {
			n += int(count)
		}
	}
	return n
}

// scannedEngine calls a function once, before chunks of 5m rollups are read, or pages of them.
type scannedEngine struct {
	engine.Engine
	before atomic.Pointer[func()]
}

// Scan implements engine.Engine.
func (e *scannedEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if (r.Table == engine.R5m || r.Table == engine.R5mPages) && len(r.From) > 0 && r.From[0].Int == format.KindChunk {
		if f := e.before.Swap(nil); f != nil {
			(*f)()
		}
	}
	return e.Engine.Scan(ctx, r)
}

// TestImportWhileAnotherProcessCleans imports history of which only rollups are made into the range of a delete, while
// another process takes out of the same rows the samples of the delete: between its look at the marks and its reading
// of the rows. The imported samples stay.
func TestImportWhileAnotherProcessCleans(t *testing.T) {
	eng := &scannedEngine{Engine: memory.New()}
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{eng, r.now}
	keep := func(o *Options) { o.Retention = 2 * day }
	cleans, imports := r.start(0, keep), r.start(0, keep)
	at := r.now().Add(-40 * day).Truncate(2 * time.Hour)
	bring := func(m *clockMachine, from time.Time) {
		var samples chunk.Samples
		for i := range 60 {
			samples.AppendFloat(from.Add(time.Duration(i+1)*time.Minute).UnixMilli(), 0, float64(i))
		}
		stats, err := m.Import(t.Context(), "t", []ImportedSeries{{labels.FromStrings(labels.MetricName, "m"), &samples}})
		require.NoError(t, err)
		require.Equal(t, 60, stats.RollupsOnly)
	}
	bring(cleans, at)
	require.Equal(t, 60, cleans.counted())
	require.NoError(t, cleans.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
	require.Zero(t, imports.counted())

	f := func() { bring(imports, at.Add(time.Hour)) }
	eng.before.Store(&f)
	require.NoError(t, cleans.CleanTombstones(t.Context(), "t"))
	require.Nil(t, eng.before.Load(), "it was imported meanwhile")
	r.pass(deleteRests + time.Hour)
	for _, m := range []*clockMachine{cleans, imports} {
		require.NoError(t, m.member.SendHeartbeat(t.Context()))
		require.NoError(t, m.CleanTombstones(t.Context(), "t"))
		require.Equal(t, 60, m.counted())
	}
}
