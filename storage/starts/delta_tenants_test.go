package starts

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

const day = 24 * time.Hour

var noon = time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)

// keeperOf returns the DeltaTenants of an engine, the buffer to which the DeltaTenants logs, and the number of rows
// that it couldn't read.
func keeperOf(t *testing.T, eng engine.Engine) (k *DeltaTenants, log *bytes.Buffer, corrupt *int) {
	log, corrupt = &bytes.Buffer{}, new(int)
	k = New(Options{
		Engine: eng, Period: format.NewPeriods(format.Period{
			SlotMS: format.HourMS, RawWindowMS: format.DayMS, Partitions: 1,
		}), Now: func() time.Time { return noon },
		Corrupt: func(table *engine.Table, err error) {
			require.Equal(t, engine.Store, table)
			require.ErrorIs(t, err, engine.ErrCorrupt)
			*corrupt++
		},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, k.Open(t.Context()))
	return k, log, corrupt
}

func stored(t *testing.T, eng engine.Engine) map[string]string {
	rows := map[string]string{}
	for r, err := range eng.Scan(t.Context(), engine.Range{Table: engine.Store, Partition: partition}) {
		require.NoError(t, err)
		rows[r.Clustering[0].Text] = string(r.Value)
	}
	return rows
}

func TestRecord(t *testing.T) {
	ctx, eng := t.Context(), memory.New()
	k, log, _ := keeperOf(t, eng)
	require.Equal(t, Never, k.DeltasAfter("shop"))
	require.NoError(t, k.Record(ctx, "shop", noon.UnixMilli()))
	require.Equal(t, noon.Truncate(day).UnixMilli(), k.DeltasAfter("shop"))
	require.Equal(t, Never, k.DeltasAfter("other"))
	require.Equal(t, map[string]string{"shop": `{"from_ms":1778025600000,"since_ms":1778068800000}`}, stored(t, eng))

	other, otherLog, _ := keeperOf(t, eng)
	require.Equal(t, k.Tenants(), other.Tenants())
	require.Empty(t, otherLog.String())
	require.NoError(t, other.Record(ctx, "shop", noon.Add(day).UnixMilli()), "it is recorded already")
	require.NoError(t, other.Record(ctx, "shop", noon.Truncate(day).UnixMilli()), "the end of the day before")
	require.Equal(t, noon.Truncate(day).Add(-day).UnixMilli(), other.DeltasAfter("shop"))
	require.NoError(t, k.Record(ctx, "shop", noon.UnixMilli()))
	require.NoError(t, k.Refresh(ctx))
	require.NoError(t, k.Refresh(ctx))
	require.Equal(t, other.Tenants(), k.Tenants())
	require.Equal(t, noon, k.Tenants()[0].Since.UTC())
	require.Equal(t, 2, strings.Count(log.String(), "the tenant sends deltas"), "once a time")
}

// TestRecordOfSeveralProcesses checks that the earliest time is kept if multiple processes record a tenant
// concurrently, with different times, and responses of the engine are lost.
func TestRecordOfSeveralProcesses(t *testing.T) {
	inner := memory.New()
	var all sync.WaitGroup
	for i := range 4 {
		eng := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.CompareAndSet && op.N%3 == 1 {
				return faultengine.Lose(engine.ErrUnavailable)
			}
			return faultengine.Pass()
		})
		k, _, _ := keeperOf(t, eng)
		all.Go(func() {
			for back := range 5 {
				at := noon.Add(-time.Duration(4*back+i) * day).UnixMilli()
				for k.Record(context.Background(), "shop", at) != nil {
				}
				if k.DeltasAfter("shop") > at {
					t.Errorf("not recorded as of %d", at)
				}
			}
		})
	}
	all.Wait()
	k, _, _ := keeperOf(t, inner)
	require.Equal(t, noon.Truncate(day).Add(-19*day).UnixMilli(), k.DeltasAfter("shop"))
}

// TestUnreadableRow checks that a tenant whose row can't be read counts as having sent deltas at any time.
func TestUnreadableRow(t *testing.T) {
	ctx, eng := t.Context(), memory.New()
	ok, _, err := eng.CompareAndSet(ctx, engine.Store, partition, engine.Key{engine.Text("shop")}, nil, []byte("{"))
	require.True(t, ok)
	require.NoError(t, err)
	k, _, corrupt := keeperOf(t, eng)
	require.EqualValues(t, -format.MaxTime, k.DeltasAfter("shop"))
	require.NoError(t, k.Record(ctx, "shop", noon.UnixMilli()))
	require.NoError(t, k.Refresh(ctx))
	require.Equal(t, 1, *corrupt)
	require.Equal(t, map[string]string{"shop": "{"}, stored(t, eng))
}
