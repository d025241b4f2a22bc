package jsonapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

var testNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// rig is an API with a real store on Pebble. answers returns the results of queries.
type rig struct {
	*API
	store   *storage.Store
	asked   Evaluation
	answers func() (promengine.Matrix, error)
	// told holds the resolution and notes of results.
	told Result
	// full, if set, is the error of Enter. inside records the tenant of each Enter, and "left" for each leave.
	full   error
	inside []string
}

// Answered implements Evaluator.
func (r *rig) Answered(context.Context, int64) {}

// Enter implements Evaluator.
func (r *rig) Enter(ctx context.Context) (context.Context, func(), error) {
	if r.full != nil {
		return nil, nil, r.full
	}
	r.inside = append(r.inside, tenant.FromContext(ctx))
	return ctx, func() { r.inside = append(r.inside, "left") }, nil
}

// Evaluate implements Evaluator.
func (r *rig) Evaluate(_ context.Context, q Evaluation, yield func(Result) error) error {
	r.asked = q
	found, err := r.answers()
	if err != nil {
		return err
	}
	r.told.Series = found
	return yield(r.told)
}

type rigOptions struct {
	rule    func(faultengine.Op) faultengine.Action
	storage func(*storage.Options)
	api     func(*Options)
}

func newRig(t testing.TB, ro rigOptions) *rig {
	var eng engine.Engine = storagetest.Pebble(t)
	if ro.rule != nil {
		eng = faultengine.Wrap(eng, ro.rule)
	}
	o := DefaultOptions()
	store := storagetest.Open(
		t, eng, storagetest.FixedClock(testNow), ro.storage, func(so *storage.Options) { o.Now = so.Now },
	)
	o.Tenant = func(_ context.Context, asked string) (string, error) {
		switch {
		case asked == "secret":
			return "", fmt.Errorf("%w: tenant secret", ErrForbidden)
		case asked == "":
			return tenant.Default, nil
		}
		return asked, tenant.CheckName(asked)
	}
	if ro.api != nil {
		ro.api(&o)
	}
	r := &rig{store: store, answers: func() (promengine.Matrix, error) { return nil, nil }}
	var err error
	r.API, err = New(store, r, o)
	require.NoError(t, err)
	return r
}

// post sends JSON to a handler.
func post(h http.HandlerFunc, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := httptest.NewRecorder()
	h(w, r)
	return w
}

func get(h http.HandlerFunc, query string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h(w, httptest.NewRequest(http.MethodGet, "/?"+query, nil))
	return w
}

func decodeError(t testing.TB, w *httptest.ResponseRecorder) (e errorAnswer) {
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&e))
	_, err := decoder.Token()
	require.ErrorIs(t, err, io.EOF)
	require.NotEmpty(t, e.Error)
	return e
}

// stored returns a tenant's samples as text, by series.
func (r *rig) stored(t testing.TB, of string) map[string]string {
	found, err := r.store.Select(context.Background(), query.Query{
		Tenant: of, MinT: math.MinInt64 / 2, MaxT: math.MaxInt64 / 2,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
	})
	require.NoError(t, err)
	out := map[string]string{}
	for _, one := range found {
		var samples chunk.Samples
		require.NoError(t, one.Samples(&samples))
		text := ""
		for i, at := range samples.T {
			text += fmt.Sprintf("%v@%d ", samples.V[i], at)
		}
		out[one.Labels.String()] = strings.TrimSpace(text)
	}
	return out
}
