package storage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// expireRows makes the store behave as if its engine expired rows.
func (ts *testStore) expireRows() {
	have, _, err := readSettings(ts.t.Context(), ts.eng)
	require.NoError(ts.t, err)
	env := ts.retentionEnv()
	env.Expires = true
	ts.retention = retention.New(env, have.ClassHistory)
	require.NoError(ts.t, ts.retention.Open(ts.t.Context()))
}

// livesEngine compares the TTLs of written rows with the retentions of their windows.
type livesEngine struct {
	engine.Engine
	t              testing.TB
	of             *testStore
	series, shared int
}

// Write implements engine.Engine.
func (e *livesEngine) Write(ctx context.Context, batches []engine.Batch) error {
	for _, b := range batches {
		e.batch(b)
	}
	return e.Engine.Write(ctx, batches)
}

func (e *livesEngine) batch(b engine.Batch) {
	var want retention.Durations
	switch b.Table {
	case engine.Raw, engine.R5m, engine.R1h:
		e.series += len(b.Mutations)
		want = [...]retention.Durations{keepLong, keepShort, keepLonger}[b.Partition[1].Int]
		if b.Partition[1].Int == retention.DefaultClass && b.Partition[2].Text == "brief" {
			want = e.of.opts.TenantRetention["brief"]
		}
	case engine.Sealed, engine.Catalog:
		e.shared++
		want = keepLonger
	default:
		return
	}
	window := b.Partition[0].Int
	res := format.ResolutionOf(window)
	kept := want.Duration(res)
	if kept == 0 {
		require.Equal(e.t, rollup.OneHour, res)
		require.Zero(e.t, b.Expires)
		return
	}
	require.Equal(e.t, e.of.period.WindowEnd(window)/1000+int64(max(
		kept+retention.Grace, [...]time.Duration{0, 14 * day, 35 * day}[res],
	).Seconds()), b.Expires, "%s %v", b.Table, b.Partition)
}
