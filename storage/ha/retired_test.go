package ha

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestClustersAreForgotten checks that the number of exported metrics is bounded after many clusters have sent once.
// After some days of silence, no process may keep a cluster in memory or read its rows.
func TestClustersAreForgotten(t *testing.T) {
	t.Parallel()
	var registries []*prometheus.Registry
	var reads atomic.Int64
	p := newRig(t, faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Held {
			reads.Add(1)
		}
		return faultengine.Pass()
	}), 1, func(o *Options) {
		registries = append(registries, prometheus.NewRegistry())
		o.Clusters, o.Registerer = 2000, registries[len(registries)-1]
	})
	const clusters = 600
	for i := range clusters {
		name := fmt.Sprint("gone-", i)
		require.NoError(t, p.send(0, name, "a", p.now, 1))
	}
	require.NoError(t, p.trackers[0].CheckReplica("default", "never", "a"))
	metrics := func() (lines int, known float64) {
		families, err := registries[0].Gather()
		require.NoError(t, err)
		for _, f := range families {
			lines += len(f.GetMetric())
			if f.GetName() == "cassia_ha_clusters" {
				for _, m := range f.GetMetric() {
					known += m.GetGauge().GetValue()
				}
			}
		}
		return lines, known
	}
	p.advance(10 * time.Second)
	lines, known := metrics()
	require.Less(t, lines, maxSilences+20)
	require.Equal(t, float64(clusters), known)

	p.now = p.now.Add(retireClusterAfter + time.Hour)
	p.advance(2 * time.Minute)
	reads.Store(0)
	p.advance(time.Minute)
	lines, known = metrics()
	require.Less(t, lines, 20)
	require.Zero(t, known)
	require.Empty(t, p.trackers[0].listClusters())
	require.Empty(t, p.trackers[0].Status("default"))
	require.Zero(t, reads.Load())
	p.start(0)
	require.Empty(t, p.trackers[0].listClusters(), "nor does a process that begins")
}

// TestForgottenClusterGoesOn checks that a replica that wasn't elected is elected if it sends again after its cluster
// was retired, and that samples that were already stored aren't stored twice.
func TestForgottenClusterGoesOn(t *testing.T) {
	t.Parallel()
	p := newRig(t, faultengine.Wrap(memory.New(), passAll), 2, nil)
	begun := p.now
	for i := range 10 {
		require.NoError(t, p.send(i%2, "c", "a", p.now, float64(i)))
		require.NoError(t, p.send(i%2, "c", "b", p.now.Add(3*time.Second), 100+float64(i)))
		p.advance(10 * time.Second)
	}
	p.now = p.now.Add(10 * time.Minute)
	p.advance(time.Minute) // b is elected, and its last held samples are stored.
	stored := p.values()
	p.now = p.now.Add(retireClusterAfter)
	p.advance(15 * time.Minute)
	for _, tracker := range p.trackers {
		require.Empty(t, tracker.listClusters())
	}
	require.NoError(t, p.send(0, "c", "b", begun.Add(33*time.Second), 103)) // Samples of a cover it.
	require.Equal(t, stored, p.values())
	want := stored
	for i := range 12 {
		v := 200 + float64(i)
		require.NoError(t, p.send(i%2, "c", "a", p.now, v))
		want = append(want, v)
		p.advance(10 * time.Second)
	}
	require.Equal(t, want, p.values())
	for _, tracker := range p.trackers {
		st := tracker.Status("default")
		require.Len(t, st, 1)
		require.Equal(t, "a", st[0].Elected)
	}
}

// TestHeldWhileForgotten checks that a sample isn't lost if a process holds it by an outdated election, which it read
// just before another process retired the cluster.
func TestHeldWhileForgotten(t *testing.T) {
	t.Parallel()
	p := newRig(t, faultengine.Wrap(memory.New(), passAll), 2, nil)
	require.NoError(t, p.send(0, "c", "a", p.now, 1))
	p.advance(time.Minute)
	p.now = p.now.Add(retireClusterAfter + time.Hour)
	for i, tracker := range p.trackers {
		require.NoError(t, p.members[i].SendHeartbeat(t.Context()))
		require.NoError(t, tracker.readElections(t.Context())) // The cached election is fresh and not retired.
	}
	at := p.now
	require.NoError(t, p.trackers[1].CheckReplica("default", "c", "b"))
	c := p.trackers[0].findCluster(ClusterName{"default", "c"})
	ch, _ := c.current()
	require.NoError(t, c.retireIfSilent(t.Context(), ch))
	ch, _ = c.current()
	require.True(t, ch.Retired)
	require.NoError(t, p.send(1, "c", "b", at, 2))
	require.Equal(t, 1, p.heldRows("c"))
	p.advance(10 * time.Minute)
	require.Equal(t, []float64{1, 2}, p.values())
	require.Zero(t, p.heldRows("c"))
}

// TestNewClustersAreNotForgotten checks that a new cluster isn't removed before its first replica is recorded, although
// silent clusters are removed concurrently. Otherwise the samples of the replica couldn't be committed.
func TestNewClustersAreNotForgotten(t *testing.T) {
	t.Parallel()
	p := newRig(t, memory.New(), 1, func(o *Options) { o.Clusters = 1e6 })
	r := p.trackers[0]
	var ended atomic.Bool
	var removing sync.WaitGroup
	defer removing.Wait()
	defer ended.Store(true)
	removing.Go(func() {
		for !ended.Load() {
			r.removeRetired()
		}
	})
	at := ClusterName{"default", "new"}
	for i := range 50_000 {
		require.NoError(t, r.CheckReplica(at.Tenant, at.Cluster, "a"))
		r.mu.Lock()
		_, ok := r.clusters[at]
		delete(r.clusters, at)
		r.mu.Unlock()
		require.True(t, ok, i)
	}
}
