package storage

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
)

// The keys of the row of the observed uptime, which is the only row of its partition in table processes.
var (
	clockPartition = engine.Key{engine.Int(1)}
	clockKey       = engine.Key{engine.Text(strings.Repeat("\x00", engine.IDLen))}
)

// TestMalformedClockRowIsToldAtOpening opens a store with an unreadable row of the observed uptime. The row must be
// reported, and the store must work without it.
func TestMalformedClockRowIsToldAtOpening(t *testing.T) {
	r := alone(t)
	r.start(0).stop()
	require.NoError(t, r.eng.Write(t.Context(), []engine.Batch{
		{Table: engine.Processes, Partition: clockPartition, Mutations: []engine.Mutation{{
			Clustering: clockKey, Timestamp: 31539600001, Value: []byte(`{`),
		}}},
	}))
	told := prometheus.NewRegistry()
	m := r.start(0, func(o *Options) { o.Registerer = told })
	require.Equal(t, 1.0, testutil.ToFloat64(m.metrics.corrupt.WithLabelValues(engine.Processes.Name)))
	n, err := testutil.GatherAndCount(told, "cassia_store_corrupt_rows_total")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestClockRowIsStable checks the bytes of the row of the observed uptime, which must not change between releases. An
// invalid row must be rewritten.
func TestClockRowIsStable(t *testing.T) {
	r := alone(t)
	m := r.start(0)
	r.pass(365 * 24 * time.Hour)
	m.clock.ObservedUptimeMS()
	m.set(60 * 24 * time.Hour)
	require.ErrorIs(t, m.clock.MayRemove(), membership.ErrClock)
	r.pass(time.Hour)
	m.clock.ObservedUptimeMS()
	const want = `{"seen_ms":31539600000,"clock_ms":1809176400000,"doubt":{"by_ms":5184000000,"since_ms":31536000000,"clock_ms":1814356800000}}`
	row := func() (value string) {
		for row, err := range r.eng.Scan(
			t.Context(), engine.Range{Table: engine.Processes, Partition: clockPartition},
		) {
			require.NoError(t, err)
			require.Empty(t, value, "there is one")
			value = string(row.Value)
		}
		return value
	}
	require.Equal(t, want, row())
	require.NoError(t, r.eng.Write(t.Context(), []engine.Batch{
		{Table: engine.Processes, Partition: clockPartition, Mutations: []engine.Mutation{{
			Clustering: clockKey, Timestamp: 31539600001, Value: []byte(`{`),
		}}},
	}))
	m.set(0)
	r.pass(time.Hour)
	m.may()
	m.clock.ObservedUptimeMS()
	require.NotContains(t, row(), "doubt")
	m.stop()
	r.start(0).may()
}
