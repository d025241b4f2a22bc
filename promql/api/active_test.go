package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// oneQuery implements Queries with a single active query, of tenant a.
type oneQuery struct{ canceled *int }

func (q oneQuery) ActiveQueries(tenants []string) []promql.ActiveQuery {
	if tenants[0] != "a" {
		return []promql.ActiveQuery{}
	}
	return []promql.ActiveQuery{{ID: "id", Tenants: []string{"a"}, Query: "up"}}
}

func (q oneQuery) TopQueries(tenants []string, by string, limit int) promql.TopQueries {
	return promql.TopQueries{Queries: []promql.TopQuery{{Query: by, Tenants: tenants, Count: int64(limit)}}}
}

func (q oneQuery) CancelQuery(id string, tenants []string) bool {
	if id != "id" || tenants[0] != "a" {
		return false
	}
	*q.canceled++
	return true
}

func TestActiveQueries(t *testing.T) {
	canceled := 0
	r := newRig(t, func(o *Options) { o.Queries = oneQuery{&canceled} })
	ask := func(method, path, who string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(method, Prefix+"/status/active_queries"+path, nil)
		return r.do(req.WithContext(tenant.NewContext(t.Context(), who)))
	}
	var list []promql.ActiveQuery
	require.NoError(t, json.Unmarshal([]byte(data(t, ask(http.MethodGet, "", "a"))), &list))
	require.Equal(t, "up", list[0].Query)
	require.Equal(t, "[]", data(t, ask(http.MethodGet, "", "b")))
	for _, w := range []*httptest.ResponseRecorder{ask(http.MethodDelete, "/id", "b"),
		ask(http.MethodPost, "/other/cancel", "a")} {
		kind, _ := failure(t, w)
		require.Equal(t, "not_found", kind)
		require.Equal(t, http.StatusNotFound, w.Code)
	}
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodGet, "/id/cancel", "a").Code)
	require.Zero(t, canceled)
	require.Equal(t, http.StatusNoContent, ask(http.MethodDelete, "/id", "a").Code)
	require.Equal(t, http.StatusNoContent, ask(http.MethodPost, "/id/cancel", "a").Code)
	require.Equal(t, 2, canceled)
}

func TestTopQueries(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Queries = oneQuery{} })
	ask := func(params string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodGet, Prefix+"/status/top_queries"+params, nil)
		return r.do(req.WithContext(tenant.NewContext(t.Context(), "a")))
	}
	for params, want := range map[string]promql.TopQuery{
		"":                    {Query: "time", Tenants: []string{"a"}, Count: defaultTop},
		"?by=samples&limit=3": {Query: "samples", Tenants: []string{"a"}, Count: 3},
	} {
		var got promql.TopQueries
		require.NoError(t, json.Unmarshal([]byte(data(t, ask(params))), &got))
		require.Equal(t, []promql.TopQuery{want}, got.Queries)
	}
	for _, params := range []string{"?by=name", "?limit=0", "?limit=1001", "?limit=x"} {
		require.Equal(t, http.StatusBadRequest, ask(params).Code, params)
	}
}
