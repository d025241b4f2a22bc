package remotewrite

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/tenant"
)

// newHAServer returns a server with HA enabled. change modifies the default options; it may be nil.
func newHAServer(t *testing.T, change func(*ha.Options)) *server {
	s := newServer(t, nil, nil)
	o := ha.DefaultOptions()
	if change != nil {
		change(&o)
	}
	replicas, err := storage.NewTracker(t.Context(), s.store, o)
	require.NoError(t, err)
	t.Cleanup(replicas.Close)
	opts := DefaultOptions()
	opts.HA = &HA{
		Replicas: replicas, ClusterLabel: "cluster", ReplicaLabel: "__replica__",
		On: func(name string) bool { return name == tenant.Default },
	}
	s.Handler, err = Handler(s.store, opts)
	require.NoError(t, err)
	return s
}

// haSeries returns a series of a replica with one sample.
func haSeries(name, cluster, replica string, v float64) prompb.TimeSeries {
	pairs := []string{"__name__", name}
	if replica != "" {
		pairs = []string{"__name__", name, "__replica__", replica}
	}
	if cluster != "" {
		pairs = append(pairs, "cluster", cluster)
	}
	return prompb.TimeSeries{
		Labels: protoLabels(pairs...), Samples: []prompb.Sample{{Timestamp: testMS + int64(v), Value: v}},
	}
}

func TestReplicasAreToldApart(t *testing.T) {
	s := newHAServer(t, nil)
	send := func(series ...prompb.TimeSeries) {
		t.Helper()
		for range 2 { // in the second round all aliases are known
			w := post(s, contentV1, marshalV1(t, &prompb.WriteRequest{Timeseries: series}))
			require.Equal(t, http.StatusNoContent, w.Code, w.Body)
		}
	}
	line := func(ls string, v float64) string {
		return fmt.Sprintf("%s %d 0 %016x", ls, testMS+int64(v), bitsOf(v))
	}
	send(haSeries("m", "c", "a", 1), haSeries("n", "c", "a", 2))
	send(haSeries("m", "c", "b", 3))
	// This request has samples of multiple replicas: the first replica of another cluster, a replica that isn't
	// elected, the elected replica, and series without one of the two labels.
	send(haSeries("m", "d", "b", 4), haSeries("m", "c", "b", 5), haSeries("m", "c", "a", 6), haSeries("m", "", "b", 7),
		haSeries("m", "c", "", 8))
	require.ElementsMatch(t, []string{
		line(`{__name__="m", cluster="c"}`, 1), line(`{__name__="n", cluster="c"}`, 2),
		line(`{__name__="m", cluster="d"}`, 4), line(`{__name__="m", cluster="c"}`, 6),
		line(`{__name__="m", __replica__="b"}`, 7), line(`{__name__="m", cluster="c"}`, 8),
	}, s.stored(t, tenant.Default))
}

// renamingBatch adds the cluster to the name of a series, and drops a series by its new name.
type renamingBatch struct {
	*storage.Batch
	isDropped bool
}

func (b *renamingBatch) Lookup(alias []byte) (*storage.Series, bool) {
	b.isDropped = false
	return b.Batch.Lookup(alias)
}

func (b *renamingBatch) Define(alias []byte, ls labels.Labels) (*storage.Series, error) {
	if ls.Get(labels.MetricName) == "dropped" {
		b.isDropped = true
		return new(storage.Series), nil
	}
	builder := labels.NewBuilder(ls)
	ls = builder.Set(labels.MetricName, ls.Get(labels.MetricName)+"_"+ls.Get("cluster")+ls.Get("__replica__")).Labels()
	return b.Batch.Define(alias, ls)
}

func (b *renamingBatch) Float(ref *storage.Series, t, st int64, v float64) error {
	if b.isDropped {
		return adapter.ErrDropped
	}
	return b.Batch.Float(ref, t, st, v)
}

// TestRulesOverReplicas checks that rules see the series of the elected replica without the replica label, and that
// dropped samples count as written.
func TestRulesOverReplicas(t *testing.T) {
	s := newHAServer(t, nil)
	replicas, err := storage.NewTracker(t.Context(), s.store, ha.DefaultOptions())
	require.NoError(t, err)
	t.Cleanup(replicas.Close)
	opts := DefaultOptions()
	opts.HA = &HA{
		Replicas: replicas, ClusterLabel: "cluster", ReplicaLabel: "__replica__", On: func(string) bool { return true },
	}
	opts.Rules = func(_ string, b *storage.Batch) adapter.Batch {
		b.UseAliases(1)
		return &renamingBatch{Batch: b}
	}
	s.Handler, err = Handler(s.store, opts)
	require.NoError(t, err)
	all := []prompb.TimeSeries{haSeries("m", "c", "a", 1), haSeries("dropped", "c", "a", 2), haSeries("n", "c", "b", 3)}
	for _, n := range []int{2, 3, 3} { // The first request causes an election.
		w := post(s, contentV2, marshalV2(t, v2From(&prompb.WriteRequest{Timeseries: all[:n]})))
		require.Equal(t, http.StatusNoContent, w.Code, w.Body)
		require.Equal(t, fmt.Sprint(n), w.Header().Get(headerSamplesWritten))
	}
	require.Equal(t, []string{fmt.Sprintf(`{__name__="m_c", cluster="c"} %d 0 %016x`, testMS+1, bitsOf(1))},
		s.stored(t, tenant.Default))
}

func TestTooManyClustersOfReplicas(t *testing.T) {
	s := newHAServer(t, func(o *ha.Options) { o.Clusters = 1 })
	good, bad := haSeries("m", "c", "a", 1), haSeries("m", "d", "a", 2)
	w := post(s, contentV1, marshalV1(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{good, bad}}))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), ha.ReasonTooManyClusters)
	require.Len(t, s.stored(t, tenant.Default), 1)
}

// Names of clusters and replicas must be valid UTF-8. The store can't validate the replica label, because it is removed
// before the samples are stored.
func TestNamesOfReplicasAreUTF8(t *testing.T) {
	s := newHAServer(t, nil)
	for _, bad := range []prompb.TimeSeries{haSeries("m", "c", "a\xff", 2), haSeries("m", "c\xff", "a", 3)} {
		w := post(s, contentV1, marshalV1(t, &prompb.WriteRequest{
			Timeseries: []prompb.TimeSeries{haSeries("m", "c", "a", 1), bad},
		}))
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), storage.ReasonInvalidUTF8)
		require.Len(t, s.stored(t, tenant.Default), 1)
	}
}
