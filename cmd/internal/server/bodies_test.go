package server

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
)

func TestBodiesAreBounded(t *testing.T) {
	o := testOptions()
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if query := r.FormValue("query"); query != "" {
			_, _ = io.WriteString(w, "form "+query)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(w, "body "+string(body[:min(len(body), 10)]))
	})
	h := NewHandler(o)
	const form = "application/x-www-form-urlencoded; charset=utf-8"
	for about, c := range map[string]struct {
		kind, body string
		announced  bool
		code       int
		want       string
	}{
		"form":                           {form, "query=up", true, 200, "form up"},
		"form in pieces":                 {form, "query=up", false, 200, "form up"},
		"bytes":                          {"application/x-protobuf", "abc", true, 200, "body abc"},
		"bytes in pieces":                {"application/x-protobuf", "abc", false, 200, "body abc"},
		"largest":                        {"application/x-protobuf", strings.Repeat("x", maxBody), true, 200, "body xxxxxxxxxx"},
		"largest in pieces":              {"application/x-protobuf", strings.Repeat("x", maxBody), false, 200, "body xxxxxxxxxx"},
		"larger":                         {"application/x-protobuf", strings.Repeat("x", maxBody+1), true, 413, "the body has more than 10485760 bytes"},
		"larger in pieces":               {"application/x-protobuf", strings.Repeat("x", maxBody+1), false, 413, "the body has more than 10485760 bytes"},
		"larger form":                    {form, "query=" + strings.Repeat("x", maxBody), true, 413, "the body has more than 10485760 bytes"},
		"larger form in pieces":          {form, "query=" + strings.Repeat("x", maxBody), false, 413, "the body has more than 10485760 bytes"},
		"form that can't be read":        {form, "query=%zz", true, 400, "reading the body: "},
		"form with very many parameters": {form, strings.Repeat("a&", 1<<20), true, 400, "reading the body: "},
	} {
		var body io.Reader = strings.NewReader(c.body)
		if !c.announced {
			body = struct{ io.Reader }{body}
		}
		r := httptest.NewRequest(http.MethodPost, "/api/v1/query", body)
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.code, w.Code, "%s: %s", about, w.Body)
		require.Contains(t, w.Body.String(), c.want, about)
	}
}

func TestAllBodiesTogetherAreBounded(t *testing.T) {
	b := bodyLimits{each: 100, budget: adapter.NewBudget(150)}
	ask := func(next http.HandlerFunc) int {
		r := httptest.NewRequest(http.MethodPost, "/", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 100))})
		w := httptest.NewRecorder()
		b.serveBounded(w, r, next)
		return w.Code
	}
	inner := 0
	require.Equal(t, http.StatusOK, ask(func(http.ResponseWriter, *http.Request) {
		inner = ask(func(http.ResponseWriter, *http.Request) { t.Error("there is no room for two") })
	}))
	require.Equal(t, http.StatusServiceUnavailable, inner)
	require.Zero(t, b.budget.Used())
	require.Equal(t, http.StatusOK, ask(func(http.ResponseWriter, *http.Request) {}))
}

// slowSender is a client that has kept the process waiting for a minute.
type slowSender struct{ giveUp func() }

func (slowSender) Overdue(time.Time) (time.Duration, bool) { return time.Minute, true }

func (s slowSender) GiveUp() { s.giveUp() }

// TestBodiesMakeRoom checks that when a body would exceed the limit on the bytes of all bodies, another request is
// aborted and releases its bytes.
func TestBodiesMakeRoom(t *testing.T) {
	b := bodyLimits{each: 100, budget: adapter.NewBudget(150)}
	given := 0
	var slow adapter.Share
	slow = b.budget.NewShare(adapter.WithSender(t.Context(), slowSender{func() { given++; go slow.Release() }}))
	require.NoError(t, slow.Claim(100))
	r := httptest.NewRequest(http.MethodPost, "/", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 100))})
	w := httptest.NewRecorder()
	b.serveBounded(w, r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, 1, given)
	require.Zero(t, b.budget.Used())
}

func TestSlowBodiesSayWhy(t *testing.T) {
	b := bodyLimits{each: 100, budget: adapter.NewBudget(100)}
	for err, code := range map[error]int{
		errSlow: http.StatusRequestTimeout, errors.New("gone"): http.StatusBadRequest,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("x"), failing{err}))
		w := httptest.NewRecorder()
		b.serveBounded(w, r, http.NotFoundHandler())
		require.Equal(t, code, w.Code)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
