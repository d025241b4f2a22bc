package remotewrite

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// newLimitedServer returns a server with the limits in file and the clock now.
func newLimitedServer(t *testing.T, now *time.Time, file string) *server {
	table, err := tenant.ParseLimits([]byte(file))
	require.NoError(t, err)
	limiter := tenant.NewLimiter(func() time.Time { return *now }, nil)
	limiter.Set(table)
	s := newServer(t, nil, func(o *storage.Options) { o.Limiter = limiter })
	opts := DefaultOptions()
	opts.Limiter = limiter
	s.Handler, err = Handler(s.store, opts)
	require.NoError(t, err)
	return s
}

// sendAs sends one sample for each of the given series names.
func (s *server) sendAs(t *testing.T, name string, series ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := prompb.WriteRequest{}
	for i, metric := range series {
		w.Timeseries = append(w.Timeseries, prompb.TimeSeries{
			Labels:  []prompb.Label{{Name: "__name__", Value: metric}},
			Samples: []prompb.Sample{{Timestamp: testMS + int64(i), Value: 1}},
		})
	}
	body, err := w.Marshal()
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(
		tenant.NewContext(t.Context(), name), http.MethodPost, "/", strings.NewReader(string(snappy.Encode(nil, body))),
	)
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, r)
	return answer
}

func TestTenantRate(t *testing.T) {
	now := testNow
	s := newLimitedServer(t, &now, "tenants: {a: {samples_per_second: 1, samples_burst: 4}}")
	require.Equal(t, http.StatusNoContent, s.sendAs(t, "a", "m1", "m2", "m3").Code)
	rejected := s.sendAs(t, "a", "m4", "m5", "m6")
	require.Equal(t, http.StatusTooManyRequests, rejected.Code)
	require.Equal(t, "2", rejected.Header().Get("Retry-After"))
	require.Contains(t, rejected.Body.String(),
		`limit samples_per_second of tenant "a": more than 1 samples per second`)
	require.Equal(t, http.StatusNoContent, s.sendAs(t, "b", "m4", "m5", "m6").Code, "others aren't disturbed")
	require.Len(t, s.stored(t, "a"), 3, "nothing of what was rejected is stored")
	now = now.Add(2 * time.Second)
	require.Equal(t, http.StatusNoContent, s.sendAs(t, "a", "m4", "m5", "m6").Code)

	now = now.Add(time.Hour)
	never := s.sendAs(t, "a", "m1", "m2", "m3", "m4", "m5")
	require.Equal(t, http.StatusRequestEntityTooLarge, never.Code, "a sender that tries again for ever would be stuck")
	require.Empty(t, never.Header().Get("Retry-After"))
	require.Contains(t, never.Body.String(), "limit samples_burst")
}

func TestTenantSeries(t *testing.T) {
	now := testNow
	s := newLimitedServer(
		t, &now, "tenants: {a: {active_series: 2}, b: {new_series_per_hour: 1}, c: {labels: 0, label_value_bytes: 5}}",
	)
	require.Equal(t, http.StatusNoContent, s.sendAs(t, "a", "m1", "m2").Code)
	partly := s.sendAs(t, "a", "m1", "m3", "m2")
	require.Equal(t, http.StatusBadRequest, partly.Code, "known series must not wait behind new ones")
	require.Contains(t, partly.Body.String(), "1 of 3 samples rejected: active_series (1 sample)")
	require.Len(t, s.stored(t, "a"), 3, "m2 came at another time than before")
	require.Equal(t, 2, s.store.ActiveSeries("a"))

	require.Equal(t, http.StatusBadRequest, s.sendAs(t, "b", "m1", "m2").Code)
	require.Len(t, s.stored(t, "b"), 1)
	now = now.Add(time.Hour)
	require.Equal(t, http.StatusNoContent, s.sendAs(t, "b", "m2").Code)

	long := s.sendAs(t, "c", "longer", "short")
	require.Equal(t, http.StatusBadRequest, long.Code)
	require.Contains(t, long.Body.String(), "label_value_too_long")
	require.Contains(t, long.Body.String(), "bytes; the maximum is 5")
	require.Len(t, s.stored(t, "c"), 1)
	require.Zero(t, s.store.ActiveSeries("nobody"))
}

func TestTenantRequestSize(t *testing.T) {
	now := testNow
	s := newLimitedServer(t, &now, "tenants: {a: {request_bytes: 200}}")
	require.Equal(t, http.StatusNoContent, s.sendAs(t, "a", "m1").Code)
	for _, metric := range []string{strings.Repeat("x", 300), "m" + strings.Repeat("0123456789abcdefghijklm", 12)} {
		large := s.sendAs(t, "a", metric)
		require.Equal(t, http.StatusRequestEntityTooLarge, large.Code)
		require.Contains(t, large.Body.String(),
			`limit request_bytes of tenant "a": the request has more than 200 bytes`)
		require.Equal(t, http.StatusNoContent, s.sendAs(t, "b", metric).Code)
	}
}
