package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/tenant"
)

func TestDeleteSeries(t *testing.T) {
	var r rig
	r = newRig(t, func(o *Options) {
		o.AdminAPI = true
		o.Delete = func(ctx context.Context, tenant string, start, end int64, ms ...*labels.Matcher) error {
			return r.store.Delete(ctx, tenant, start, end, ms...)
		}
		o.CleanTombstones = func(ctx context.Context, tenant string) error {
			return r.store.CleanTombstones(ctx, tenant)
		}
	})
	of := func(who, method, path string) *httptest.ResponseRecorder {
		path, form, post := strings.Cut(path, " ")
		req := httptest.NewRequest(method, Prefix+path, strings.NewReader(form))
		if post {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return r.do(req.WithContext(tenant.NewContext(t.Context(), who)))
	}
	count := func(who string) string {
		return data(t, of(who, http.MethodGet, "/query?query=sum(count_over_time(m[1h]))&time=1000"))
	}
	const all, left = `[1000,"600"]`, `[1000,"579"]`
	require.Contains(t, count("default"), all)
	w := of("default", http.MethodPost, `/admin/tsdb/delete_series match[]=m{i="1"}&start=10&end=30`)
	require.Equal(t, http.StatusNoContent, w.Code, "%s", w.Body)
	require.Empty(t, w.Body.String())
	require.Contains(t, count("default"), left, "a span of 21 seconds, both ends included")
	require.Contains(t, count("other"), all, "another tenant's series of the same name stay")
	for _, who := range []string{"default", "other"} {
		require.Equal(t, http.StatusNoContent, of(who, http.MethodPut, "/admin/tsdb/clean_tombstones").Code)
	}
	require.Contains(t, count("default"), left)
	require.Contains(t, count("other"), all)
	w = of("other", http.MethodPut, `/admin/tsdb/delete_series?match[]=nothing&match[]={i=~"0|1"}`)
	require.Equal(t, http.StatusNoContent, w.Code, "%s", w.Body)
	require.Contains(t, count("other"), `"result":[]`, "without bounds everything goes")
	require.Contains(t, count("default"), left)
	for path, part := range map[string]string{
		"/admin/tsdb/delete_series":                   "no match[] parameter provided",
		"/admin/tsdb/delete_series?match[]=m&start=x": `invalid parameter "start"`,
		"/admin/tsdb/delete_series?match[]=m&end=x":   `invalid parameter "end"`,
		"/admin/tsdb/delete_series?match[]=m{":        `invalid parameter "match[]"`,
	} {
		w := of("default", http.MethodPost, path)
		require.Equal(t, http.StatusBadRequest, w.Code, path)
		kind, message := failure(t, w)
		require.Equal(t, "bad_data", kind, path)
		require.Contains(t, message, part, path)
	}
	require.Contains(t, count("default"), left, "what is refused deletes nothing")
}

func TestDeletesThatFail(t *testing.T) {
	for err, code := range map[error]int{
		storage.ErrNotReady: 503, engine.ErrUnavailable: 503, storage.ErrTooManyDeletes: 422, engine.ErrClosed: 500,
		membership.ErrClock: 503, storage.ErrBadDelete: 400, &tenant.LimitError{Status: 429}: 429,
	} {
		r := newRig(t, func(o *Options) {
			o.AdminAPI = true
			o.Delete = func(context.Context, string, int64, int64, ...*labels.Matcher) error { return err }
			o.CleanTombstones = func(context.Context, string) error { return err }
		})
		for _, path := range []string{"/admin/tsdb/delete_series?match[]=m", "/admin/tsdb/clean_tombstones"} {
			w := r.do(httptest.NewRequest(http.MethodPost, Prefix+path, nil))
			require.Equal(t, code, w.Code, "%s: %s", path, w.Body)
			kind, message := failure(t, w)
			require.Equal(t, errorType(code), kind)
			require.Equal(t, storage.PlainText(err.Error()), message)
		}
	}
}
