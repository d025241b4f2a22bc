package cassandra

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func writer(n byte) engine.Value {
	return engine.Text(strings.Repeat(string([]byte{n}), engine.IDLen))
}

func mutation(seq int64, value []byte) engine.Mutation {
	return engine.Mutation{
		Clustering: engine.Key{writer(1), engine.Int(seq)}, Timestamp: 1_700_000_000_000_000, Value: value,
	}
}

// stage returns a batch for a partition of a slot that no other test uses.
func stage(slot int64, mutations ...engine.Mutation) engine.Batch {
	return engine.Batch{
		Table: engine.Stage, Partition: engine.Key{engine.Int(slot), engine.Int(77)}, Mutations: mutations,
	}
}

func write(t testing.TB, e engine.Engine, batches ...engine.Batch) {
	t.Helper()
	require.NoError(t, e.Write(context.Background(), batches))
}

// sizes returns the sizes of a partition's values.
func sizes(t testing.TB, e engine.Engine, r engine.Range) []int {
	t.Helper()
	var found []int
	for row, err := range e.Scan(context.Background(), r) {
		require.NoError(t, err)
		found = append(found, len(row.Value))
	}
	return found
}

func rangeOf(b engine.Batch) engine.Range {
	return engine.Range{Table: b.Table, Partition: b.Partition}
}

// cell reads the stored columns of a row of table stage directly from Cassandra.
func cell(t testing.TB, e *Engine, slot, seq int64) (data []byte, written int64, ttl int, ok bool) {
	t.Helper()
	var live *int
	err := e.session.Query("SELECT data, WRITETIME(data), TTL(data) FROM "+e.opts.Keyspace+
		".stage WHERE slot = ? AND partition = 77 AND writer = ? AND seq = ?",
		slot, writer(1).Text, seq).Scan(&data, &written, &live)
	if err == gocql.ErrNotFound {
		return nil, 0, 0, false
	}
	require.NoError(t, err)
	if live != nil {
		ttl = *live
	}
	return data, written, ttl, true
}

func TestTimeToLive(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	now := time.Now()
	o.ClusterTime = func() time.Time { return now }
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	const slot = 1001
	at := func(seq int64, in time.Duration) engine.Batch {
		b := stage(slot, mutation(seq, []byte("v")))
		b.Expires = now.Add(in).Unix()
		return b
	}
	write(t, e, stage(slot, mutation(0, []byte("v"))), at(1, time.Hour), at(4, 15*365*24*time.Hour),
		at(5, 2*time.Second))
	for _, past := range []engine.Batch{at(2, 0), at(3, -time.Hour)} {
		require.ErrorIs(
			t, e.Write(t.Context(), []engine.Batch{stage(slot, mutation(6, []byte("v"))), past}), engine.ErrExpired,
		)
	}

	_, _, ttl, ok := cell(t, e, slot, 0)
	require.True(t, ok)
	require.Zero(t, ttl, "no end")
	_, _, ttl, ok = cell(t, e, slot, 1)
	require.True(t, ok)
	require.LessOrEqual(t, ttl, 3600)
	require.GreaterOrEqual(t, ttl, 3600-int(time.Since(now).Seconds())-1)
	for _, seq := range []int64{2, 3, 6} {
		_, _, _, ok = cell(t, e, slot, seq)
		require.False(t, ok, "row %d of a refused write is there", seq)
	}
	_, _, ttl, ok = cell(t, e, slot, 4)
	require.True(t, ok)
	require.Zero(t, ttl, "what Cassandra can't count to is kept for ever")
	require.Eventually(t, func() bool {
		return len(sizes(t, e, rangeOf(stage(slot)))) == 3
	}, comesWithin, 100*time.Millisecond, "row 5 stays")
}

// TestTimeToLiveByTheClustersClock checks that rows with the same Batch.Expires expire at the same time by the
// cluster's clock, even if the clocks of the processes that write the rows differ by up to six hours.
func TestTimeToLiveByTheClustersClock(t *testing.T) {
	base := testOptions(t)
	t.Parallel()
	const slot = 1008
	expires := time.Now().Add(24 * time.Hour).Unix()
	var until []int64
	for i, off := range []time.Duration{-3 * time.Hour, 0, 3 * time.Hour} {
		o := base
		o.Now = func() time.Time { return time.Now().Add(off) }
		e := open(t, o)
		b := stage(slot, mutation(int64(i), []byte("v")))
		b.Expires = expires
		write(t, e, b)
		_, _, ttl, ok := cell(t, e, slot, int64(i))
		require.True(t, ok)
		there, err := e.Clock(t.Context())
		require.NoError(t, err)
		until = append(until, there.Unix()+int64(ttl))
		require.NoError(t, e.Close())
	}
	for _, at := range until {
		require.InDelta(t, expires, at, 2, "%v", until)
	}
}

func TestTimeToLiveOf(t *testing.T) {
	for _, c := range []struct {
		name         string
		expires, now int64
		want         int
	}{
		{"in a second", 1001, 1000, 1},
		{"now", 1000, 1000, -1},
		{"before", 999, 1000, -1},
		{"the last second", lastExpiry, lastExpiry - 5, 5},
		{"after the last second", lastExpiry + 1, lastExpiry - 5, 0},
		{"20 years", 1000 + maxTTL, 1000, maxTTL},
		{"more than 20 years", 1001 + maxTTL, 1000, 0},
	} {
		require.Equal(t, c.want, timeToLive(c.expires, c.now), c.name)
	}
}

func TestTimestampsAndEmptyValues(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	const slot = 1002
	old, odd := mutation(1, nil), mutation(2, nil)
	odd.Timestamp = -7
	write(t, e, stage(slot, old))
	write(t, e, stage(slot, odd, mutation(3, []byte{})))
	for seq, want := range map[int64]int64{1: old.Timestamp, 2: -7, 3: old.Timestamp} {
		data, written, _, ok := cell(t, e, slot, seq)
		require.True(t, ok)
		require.Equal(t, want, written)
		require.Empty(t, data)
	}
	var nulls int
	rows := e.session.Query(
		"SELECT data FROM "+e.opts.Keyspace+".stage WHERE slot = ? AND partition = 77", int64(slot),
	).Iter()
	data := []byte("before")
	for rows.Scan(&data) {
		if data == nil {
			nulls++
		}
		data = []byte("before")
	}
	require.NoError(t, rows.Close())
	require.Zero(t, nulls, "an empty value must not be a missing one")
}

// requests returns the number of successful requests of a kind.
func requests(e *Engine, op operation) float64 {
	return testutil.ToFloat64(e.metrics.requests.WithLabelValues(string(op), "ok"))
}

func TestPages(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()

	const slot = 1003
	var want []int
	for seq := range int64(40) {
		write(t, e, stage(slot, mutation(seq, make([]byte, 200<<10+seq))))
		want = append(want, 200<<10+int(seq))
	}
	before := requests(e, opScan)
	require.Equal(t, want, sizes(t, e, rangeOf(stage(slot))))
	require.InDelta(t, 9, requests(e, opScan)-before, 1, "8 rows, then 5 a megabyte")

	names := engine.Batch{Table: engine.Catalog, Partition: engine.Key{
		engine.Int(slot), engine.Int(0), engine.Text("pages"), engine.Int(0), engine.Text(""), engine.Int(0),
	}}
	for i := range 11_500 {
		names.Mutations = append(names.Mutations, engine.Mutation{
			Clustering: engine.Key{engine.Text(fmt.Sprintf("name_%05d", i))}, Timestamp: 1, Value: []byte("1"),
		})
	}
	write(t, e, names)
	before = requests(e, opScan)
	require.Len(t, sizes(t, e, rangeOf(names)), 11_500)
	require.Equal(t, 3.0, requests(e, opScan)-before, "2,000 rows, then 5,000 twice")
	before = requests(e, opScan)
	keys := rangeOf(names)
	keys.KeysOnly, keys.Limit = true, 10
	require.Equal(t, make([]int, 10), sizes(t, e, keys))
	require.Equal(t, 1.0, requests(e, opScan)-before)
}

func TestPageSize(t *testing.T) {
	for _, c := range []struct{ now, most, rowBytes, want int }{
		{8, 64, 512 << 10, 2},
		{8, 64, 2 << 20, 1},
		{8, 64, 100, 32},
		{32, 64, 100, 64},
		{500, 2000, 1 << 10, 1024},
		{500, 2000, 0, 2000},
	} {
		require.Equal(t, c.want, pageSize(c.now, c.most, c.rowBytes), "%+v", c)
	}
}

// TestOneInFlight checks that a scan doesn't hold a slot while its rows are being processed, so that a request made
// during the scan doesn't deadlock.
func TestOneInFlight(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	o.MaxInFlight = 1
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	const slot = 1004
	var batches []engine.Batch
	for seq := range int64(30) {
		batches = append(batches, stage(slot, mutation(seq, make([]byte, 100))))
	}
	write(t, e, batches...)
	n := 0
	for _, err := range e.Scan(context.Background(), rangeOf(stage(slot))) {
		require.NoError(t, err)
		write(t, e, stage(slot+1000, mutation(int64(n), nil)))
		n++
	}
	require.Equal(t, 30, n)
	require.Zero(t, testutil.ToFloat64(e.metrics.inFlight))
}

func TestWhatCassandraCantTake(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	ctx := context.Background()
	nameless := engine.Batch{Table: engine.Windows, Partition: engine.Key{engine.Text("")},
		Mutations: []engine.Mutation{{Clustering: engine.Key{engine.Int(1)}}}}
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{nameless}), engine.ErrBadKey)
	for _, err := range e.Scan(ctx, rangeOf(nameless)) {
		require.ErrorIs(t, err, engine.ErrBadKey)
	}
	binary := engine.Batch{
		Table: engine.Windows, Partition: engine.Key{engine.Text("\xff")}, Mutations: nameless.Mutations,
	}
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{binary}), engine.ErrBadKey)
	binary = engine.Batch{Table: engine.Shards, Partition: engine.Key{engine.Int(1), engine.Text("t")},
		Mutations: []engine.Mutation{{Clustering: engine.Key{engine.Text("\xc3\x28")}}}}
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{binary}), engine.ErrBadKey)
	_, _, err := e.CompareAndSet(ctx, engine.Store, engine.Key{engine.Text("")}, engine.Key{engine.Text("x")}, nil, nil)
	require.ErrorIs(t, err, engine.ErrBadKey)
	many := engine.Batch{
		Table: engine.Shards, Partition: engine.Key{engine.Int(1), engine.Text("t")},
		Mutations: make([]engine.Mutation, maxStatements+1),
	}
	for i := range many.Mutations {
		many.Mutations[i].Clustering = engine.Key{engine.Text("x")}
	}
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{many}), engine.ErrTooLarge)
}

func TestMetrics(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	write(t, e, stage(1005, mutation(1, nil)))
	sizes(t, e, rangeOf(stage(1005)))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(e))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 1.0, requests(e, opWrite))
	require.Equal(t, 1.0, requests(e, opScan))
	count, err := testutil.GatherAndCount(registry, "cassia_cassandra_nodes", "cassia_cassandra_request_seconds")
	require.NoError(t, err)
	require.Equal(t, 2+3, count, "nodes up and down; a write, a scan, and the reading of the cluster's clock")
}

func TestClock(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	there, err := e.Clock(context.Background())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), there, 24*time.Hour)
}
