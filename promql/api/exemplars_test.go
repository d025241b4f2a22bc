package api

import (
	"net/http"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

func TestQueryExemplars(t *testing.T) {
	r := newRig(t, nil)
	put := func(who, i string, e ...exemplar.Exemplar) {
		b := r.store.NewBatch(who)
		s, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "m", "i", i))
		require.NoError(t, err)
		for _, e := range e {
			require.NoError(t, b.Exemplar(s, e))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	trace := func(ts int64, id string) exemplar.Exemplar {
		return exemplar.Exemplar{Labels: labels.FromStrings("trace_id", id), Value: 1.5, Ts: ts}
	}
	put("default", "1", trace(2500, "b"), trace(1000, "a"))
	put("default", "0", trace(2000, "c"))
	put("other", "0", trace(2000, "theirs"))
	for range 2 {
		require.JSONEq(t, `[
			{"seriesLabels":{"__name__":"m","i":"0"},"exemplars":[{"labels":{"trace_id":"c"},"value":"1.5","timestamp":2}]},
			{"seriesLabels":{"__name__":"m","i":"1"},"exemplars":[
				{"labels":{"trace_id":"a"},"value":"1.5","timestamp":1}, {"labels":{"trace_id":"b"},"value":"1.5","timestamp":2.5}]}
		]`, data(t, r.get(Prefix+`/query_exemplars?query=rate(m{i=~"0|1"}[5m])/m{i="1"}`)))
		require.JSONEq(t,
			`[{"seriesLabels":{"__name__":"m","i":"1"},"exemplars":[{"labels":{"trace_id":"b"},"value":"1.5","timestamp":2.5}]}]`,
			data(t, r.get(Prefix+"/query_exemplars?query=m&start=2.5&end=3")))
		require.JSONEq(t, `[]`, data(t, r.get(Prefix+"/query_exemplars?query=n")))
		require.NoError(t, r.store.SealAll(t.Context()))
	}
	for _, bad := range []string{"query=m&start=3&end=2", "query=m{", "query=m&start=x"} {
		w := r.get(Prefix + "/query_exemplars?" + bad)
		require.Equal(t, http.StatusBadRequest, w.Code, bad)
		kind, _ := failure(t, w)
		require.Equal(t, "bad_data", kind)
	}
}

func TestQueryExemplarsThatNeedsTooMuch(t *testing.T) {
	r := newRigOver(t, func(o *storage.Options) { o.Retention, o.QueryBytes = 0, 20 }, nil)
	b := r.store.NewBatch("default")
	s, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "m"))
	require.NoError(t, err)
	require.NoError(t, b.Exemplar(s, exemplar.Exemplar{Ts: 1}))
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, http.StatusUnprocessableEntity, r.get(Prefix+"/query_exemplars?query=m").Code)
}
