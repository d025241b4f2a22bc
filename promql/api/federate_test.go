package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql"
)

// TestFederationIsBounded checks that federation is bounded in the same way as queries: it waits for its tenant's turn,
// and its selectors are limited.
func TestFederationIsBounded(t *testing.T) {
	var refuse error
	inside, left := 0, 0
	var h http.Handler
	newRig(t, func(o *Options) {
		o.Now = func() time.Time { return time.Unix(300, 0) }
		o.Enter = func(ctx context.Context) (context.Context, func(), error) {
			if refuse != nil {
				return nil, nil, refuse
			}
			inside++
			return ctx, func() { left++ }, nil
		}
		h = NewFederationHandler(*o, 5*time.Minute)
	})
	ask := func(selector string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, FederatePath+"?match[]="+url.QueryEscape(selector), nil))
		return w
	}
	w := ask("m")
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	require.Contains(t, w.Body.String(), `m{i="1",tenant="default",instance=""} 299 299000`)
	require.Equal(t, []int{1, 1}, []int{inside, left})

	refuse = promql.ErrTooManyQueries
	require.Equal(t, http.StatusServiceUnavailable, ask("m").Code)
	refuse = nil
	w = ask("{" + strings.Repeat(`a="b",`, 1001) + "}")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "a selector has more than")
	require.Equal(t, []int{1, 1}, []int{inside, left}, "what is refused doesn't enter")
}

// TestFederationOfTooMuchIsRefused checks that an answer that takes more than its share of the memory is rejected.
func TestFederationOfTooMuchIsRefused(t *testing.T) {
	var h http.Handler
	newRig(t, func(o *Options) {
		o.Now, o.MaxFederated = func() time.Time { return time.Unix(300, 0) }, 1500
		o.Enter = func(ctx context.Context) (context.Context, func(), error) { return ctx, func() {}, nil }
		h = NewFederationHandler(*o, 5*time.Minute)
	})
	for selector, code := range map[string]int{`m{i="1"}`: http.StatusOK, "m": http.StatusUnprocessableEntity} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, FederatePath+"?match[]="+url.QueryEscape(selector), nil))
		require.Equal(t, code, w.Code, "%s", w.Body)
	}
}
