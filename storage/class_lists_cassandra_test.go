package storage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestClassesOnCassandra writes into the same days with two processes on Cassandra that have different class files.
// Each day must have one list of classes, regardless of the order of writes.
func TestClassesOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // It waits for the commit log.
	hosts := cassandratest.Hosts(t)
	co := cassandra.DefaultOptions()
	co.Hosts, co.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	co.Timeout, co.ConnectTimeout = time.Minute, time.Minute
	now := time.Now() // It must be close to the cluster's clock.
	open := func(class string) *testStore {
		eng, err := cassandra.Open(t.Context(), co)
		require.NoError(t, err)
		ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: now}
		ts.opts.Partitions, ts.opts.Shared, ts.opts.AddClasses = 2, true, true
		ts.opts.Classes = []retention.Class{classOfJob(class, "ci", keepLonger)}
		ts.Store = openReady(t, eng, ts.opts)
		t.Cleanup(ts.close)
		return ts
	}
	a := open("a")
	a.write("t", jobLabels("ci"), sample{now.Add(-3 * time.Hour).UnixMilli(), 1})
	require.NoError(t, a.SealAll(t.Context()))
	b := open("b")
	require.NoError(t, a.refreshPeriods(t.Context()))
	lists := listsOf(t, b.eng)
	require.Len(t, lists, 2)
	require.GreaterOrEqual(t, lists[1].FromMS, now.Add(25*time.Hour).UnixMilli())
	// both imports samples of the same day with both processes concurrently.
	both := func(ago time.Duration, class int64) {
		t.Helper()
		at := now.Add(-ago)
		g, ctx := errgroup.WithContext(t.Context())
		for i, s := range []*testStore{a, b} {
			g.Go(func() error {
				samples := &chunk.Samples{}
				samples.AppendFloat(at.Add(time.Duration(i)*time.Second).UnixMilli(), 0, 1)
				_, err := s.Import(ctx, "t", []ImportedSeries{{jobLabels("ci"), samples}})
				return err
			})
		}
		require.NoError(t, g.Wait())
		for res := range rollup.Resolution(resolutions) {
			require.Positive(t, a.chunksAt(res, at.UnixMilli(), class, "t"), "%s", res)
		}
		require.Zero(t, a.chunksAt(rollup.Raw, at.UnixMilli(), 3-class, "t"))
	}
	both(10*day, 1)
	// Put the second list into force, which otherwise would take more than a day.
	require.NoError(t, changeSettings(context.WithoutCancel(t.Context()), a.eng, func(s *settings) bool {
		s.Lists[1].FromMS = now.Add(-time.Hour).UnixMilli()
		return true
	}))
	for _, s := range []*testStore{a, b} {
		require.NoError(t, s.refreshPeriods(t.Context()))
	}
	both(12*day, 2)
	both(10*day-time.Minute, 1)
	require.Len(t, b.all("t")[jobLabels("ci").String()], 7)
	b.check()
}
