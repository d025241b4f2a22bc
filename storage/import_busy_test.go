package storage

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/soak"
)

// busy does the background work of a server until the caller calls stop: it seals staged samples, computes missing
// rollups, releases series, and answers queries.
func (ts *testStore) busy() (stop func()) {
	ctx, cancel := context.WithCancel(ts.t.Context())
	var all sync.WaitGroup
	for _, do := range []func() error{
		func() error { return ts.SealAll(ctx) },
		func() error { _, err := ts.Expire(ctx); return err },
		func() error {
			_, err := ts.Select(ctx, query.Query{Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime})
			return err
		},
	} {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil && ctx.Err() == nil {
					ts.t.Error(err)
					return
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// TestImportIntoBusyStore imports overlapping parts of a history while other parts are written, up to slots that
// haven't ended, and staged rows of the same slots are sealed. The answers must equal the answers of a store to which
// all samples were written.
func TestImportIntoBusyStore(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	usual := openTestStore(t, func(o *Options) { o.Partitions = 3 })
	all := pastOf(r, usual.now, 3)
	usual.commit(all)
	require.NoError(t, usual.SealAll(t.Context()))
	want := usual.answers()

	onPebble := openTestStore(t, func(o *Options) { o.Partitions = 3 })
	inMemory, _ := openFaultyStore(
		t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() }, func(o *Options) { o.Partitions = 3 },
	)
	for name, ts := range map[string]*testStore{"pebble": onPebble, "memory": inMemory} {
		stop := ts.busy()
		imported, written := slices.Concat(cut(r, all), cut(r, all)), cut(r, all)
		var writing sync.WaitGroup
		writing.Go(func() {
			for _, piece := range written {
				ts.commit(piece)
			}
		})
		for _, piece := range imported {
			stats, err := ts.Import(t.Context(), "default", piece)
			require.NoError(t, err, name)
			require.Zero(t, stats.Expired+stats.Ahead+stats.Refused+stats.RollupsOnly)
		}
		writing.Wait()
		stop()
		require.NoError(t, ts.SealAll(t.Context()))
		requireAnswers(t, want, ts.answers())
		require.Equal(t, samplesOf(all), ts.check().Samples, name)
	}
}

// TestImportOfOneSeriesTwice imports a series twice in one call. Each sample must be counted and stored once, and the
// buckets must be complete.
func TestImportOfOneSeriesTwice(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]time.Duration{"raw": 0, "rollups": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			seed := soak.Seed(t)
			r := rand.New(rand.NewPCG(seed, 1))
			open := func() *testStore {
				return openTestStore(t, func(o *Options) { o.Retention, o.Retention5m = keep, 0 })
			}
			whole, parts := open(), open()
			all := pastOf(r, whole.now.AddDate(0, 0, -20), 2)
			var list []ImportedSeries
			for _, s := range all {
				a, b := copyOf(s.Samples), copyOf(s.Samples)
				at := s.Samples.T
				if len(at) > 0 {
					a.Clip(-format.MaxTime, at[len(at)/2])
					b.Clip(at[len(at)/3], format.MaxTime)
				}
				list = append(list, ImportedSeries{s.Labels, b}, ImportedSeries{s.Labels, a})
			}
			n := samplesOf(all)
			_, err := whole.Import(t.Context(), "default", all)
			require.NoError(t, err)
			stats, err := parts.Import(t.Context(), "default", list)
			require.NoError(t, err)
			require.Equal(t, n, stats.Samples+stats.RollupsOnly)
			require.Zero(t, stats.Known)
			requireAnswers(t, whole.answers(), parts.answers())
		})
	}
}
