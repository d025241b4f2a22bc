package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/inspect"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// fakeStore records its calls and always returns the same results.
type fakeStore struct {
	asked []any
	err   error
	// newest contains the time of the newest unsealed sample, by metric.
	newest map[string]time.Time
}

func (f *fakeStore) KnownTenants(context.Context) ([]string, error) {
	return []string{"team-b", "team-a"}, f.err
}

func (f *fakeStore) CountSeries(_ context.Context, q counts.SeriesQuery) (counts.SeriesCounts, error) {
	f.asked = append(f.asked, q)
	return counts.SeriesCounts{Series: 7, Metrics: []counts.Count{{Name: "up", Count: 7}}, AllMetrics: 1}, f.err
}

func (f *fakeStore) LabelValues(context.Context, string, query.Query) ([]string, error) {
	return []string{"http_requests_total", "memory_bytes", "memory_total_bytes", "up"}, f.err
}

func (f *fakeStore) NewestUnsealed(_ context.Context, _, metric string) (time.Time, error) {
	return f.newest[metric], f.err
}

func (f *fakeStore) MetricsSeen(
	_ context.Context, tenant string, metrics []string,
) (map[string]query.SeenRange, error) {
	f.asked = append(f.asked, fmt.Sprint(tenant, metrics))
	return map[string]query.SeenRange{"up": {First: time.Unix(0, 0).UTC(), Last: time.Unix(86400, 0).UTC()}}, f.err
}

func (f *fakeStore) Churn(_ context.Context, tenant string, windows int) ([]counts.WindowSeries, bool, error) {
	f.asked = append(f.asked, fmt.Sprint(tenant, windows))
	return []counts.WindowSeries{{Window: 20776, Series: 7, Added: -1, Gone: -1}}, true, f.err
}

func (f *fakeStore) Survey(_ context.Context, tenant string) ([]inspect.SurveyedWindow, bool, error) {
	f.asked = append(f.asked, tenant)
	return []inspect.SurveyedWindow{
		{WindowInfo: storage.WindowInfo{Tenant: tenant, Resolution: rollup.FiveMinutes}, Slots: 3, Of: 84, Bytes: -1},
	}, false, f.err
}

func (f *fakeStore) Space(context.Context) (map[string]int64, error) {
	return map[string]int64{"raw": 5}, f.err
}

func (f *fakeStore) RetentionOf(string) (usual, longest retention.Durations) {
	return retention.Durations{Raw: time.Hour}, retention.Durations{Raw: 2 * time.Hour}
}

func (f *fakeStore) ActiveSeries(tenant string) int { return map[string]int{"team-b": 3}[tenant] }

// fakeRelabeling returns results that contain the tenant of the call.
type fakeRelabeling struct{ err error }

func (f fakeRelabeling) Status(tenant string) relabeling.Status {
	return relabeling.Status{Rules: []relabeling.Rule{{Number: 1, Text: tenant}}}
}

func (f fakeRelabeling) Try(
	_ context.Context, t *relabeling.Table, o relabeling.TrialOptions,
) (*relabeling.Trial, error) {
	if t.RulesOf(o.Tenant) == nil {
		return nil, relabeling.ErrNoRules
	}
	return &relabeling.Trial{
		Start: time.UnixMilli(o.MinT).UTC(), End: time.UnixMilli(o.MaxT).UTC(), Refusal: o.Tenant,
		All: relabeling.Amount{DayBytes: 100}, Dropped: relabeling.Amount{DayBytes: 25},
	}, f.err
}

func (f fakeRelabeling) Space(context.Context, string) (space [3]relabeling.ResolutionSpace, err error) {
	space[0] = relabeling.ResolutionSpace{DayBytes: 10, Windows: []inspect.SurveyedWindow{
		{WindowInfo: storage.WindowInfo{End: time.Now().Add(-50 * time.Hour)}, Bytes: 7},
		{WindowInfo: storage.WindowInfo{End: time.Now()}, Bytes: 4}, {Bytes: -1},
		{WindowInfo: storage.WindowInfo{End: time.Now().Add(-99 * time.Hour), Hidden: time.Now().Add(-time.Hour)}, Bytes: 2},
	}}
	return space, f.err
}

func testOptions() Options {
	return Options{
		Relabeling: fakeRelabeling{},
		Evaluator:  func(context.Context) (Evaluator, error) { return Evaluator{Name: "a secret", Here: true}, nil },
		Version:    "1.2.3", Target: "all", Engine: "pebble", Ready: func() error { return nil }, Store: &fakeStore{},
		Work: func(context.Context) downsample.Status {
			return downsample.Status{
				WaitingSlots: 4, Doing: "sealing a secret",
				Tasks:      []downsample.TaskStatus{{Task: "c", LastError: "a secret"}},
				Rollups:    downsample.RollupStatus{Windows: 1, First: []downsample.WindowStatus{{Tenant: "a secret"}}},
				Partitions: []downsample.PartitionStatus{{LastError: "series a secret"}},
			}
		},
		RollupOf: func(name string) string {
			of, _ := strings.CutSuffix(name, "_max")
			return of
		},
		Limits: func(names []string) any { return names },
		Memory: func() (used, most int64) { return 3 << 20, 1 << 30 },
		Examine: func(context.Context) []doctor.Finding {
			return []doctor.Finding{{Level: doctor.Note, What: "found"}}
		},
		Disk: func() (doctor.DirectoryFacts, error) { return doctor.DirectoryFacts{Path: "data", Bytes: 9}, nil },
	}
}

// withAuth returns the handler of a whole server with the page's routes and four users: ann and bob read the data of
// their teams, watch can also read metrics, and ops is an admin.
func withAuth(t *testing.T, o Options) http.Handler {
	t.Helper()
	file := filepath.Join(t.TempDir(), "auth.yml")
	require.NoError(t, os.WriteFile(file, []byte(`users:
- {name: ann, tokens: ["sha256:49915e0d7d4b402e3017d010bc1c0e83cac6c797d6c16e66340fe3268693a6a1"], roles: [read], tenants: [team-a]}
- {name: bob, tokens: ["sha256:81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9"], roles: [read], tenants: [team-a, team-b]}
- {name: ops, tokens: ["sha256:a92c36e66a25ee99ff862faa8e87987be6c7cd13c3ee661c400a45b0f1e3b132"], roles: [admin], tenants: "*"}
- {name: watch, tokens: ["sha256:baed831623943be39ebf0ef44ae1e9c8fc3eeab51b5f89c113ca410d76a34c1d"], roles: [read, metrics], tenants: [team-a]}
`), 0o600))
	guard, err := auth.Open(file)
	require.NoError(t, err)
	none := http.NotFoundHandler()
	return server.NewHandler(server.Options{
		API: none, Write: none, Ready: o.Ready, Routes: NewRoutes(o), NotFound: NotFound, Auth: guard,
		HTTP: server.NewMetrics(nil), Gatherer: prometheus.NewRegistry(),
	})
}

func sendRequest(h http.Handler, user, path string, header ...string) (code int, data string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+user)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answer struct {
		Data  json.RawMessage `json:"data"`
		Error string          `json:"error"`
	}
	if json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		return w.Code, w.Body.String()
	}
	if answer.Error != "" {
		return w.Code, answer.Error
	}
	return w.Code, string(answer.Data)
}

func TestWhoSeesWhat(t *testing.T) {
	o := testOptions()
	store := o.Store.(*fakeStore)
	h := withAuth(t, o)
	code, _ := sendRequest(h, "", "/")
	require.Equal(t, http.StatusOK, code, "the page itself holds no secret")
	for _, name := range []string{
		"session", "tenants", "series", "metric", "churn", "windows", "work", "health", "relabel",
	} {
		code, _ := sendRequest(h, "", Prefix+name)
		require.Equal(t, http.StatusUnauthorized, code, name)
	}
	code, _ = sendRequest(h, "ann", Prefix+"health")
	require.Equal(t, http.StatusForbidden, code)
	for _, name := range []string{"series", "churn", "windows", "work", "relabel"} {
		code, text := sendRequest(h, "ann", Prefix+name, "X-Scope-OrgID", "team-b")
		require.Equal(t, http.StatusForbidden, code, text)
	}
	require.Empty(t, store.asked)

	_, data := sendRequest(h, "ann", Prefix+"windows")
	require.JSONEq(t,
		`{"windows":[{"resolution":"5m","start":"0001-01-01T00:00:00Z","end":"0001-01-01T00:00:00Z","bytes":-1,"slots":3,"of":84,"again":0,"imported":0,"unrolled":0}],
		"cut":false,"kept":{"raw":3600,"5m":0,"1h":0},"longest":{"raw":7200,"5m":0,"1h":0}}`, data)
	_, data = sendRequest(h, "ops", Prefix+"churn?windows=3", "X-Scope-OrgID", "team-b")
	require.JSONEq(t,
		`{"unsealed":3,"cut":true,"windows":[{"window":20776,"start":"0001-01-01T00:00:00Z","end":"0001-01-01T00:00:00Z","metrics":0,"series":7,"added":-1,"gone":-1}]}`,
		data)
	_, data = sendRequest(h, "bob", Prefix+"series?window=20776&metric=up&label=job&limit=5", "X-Scope-OrgID", "team-b")
	require.JSONEq(t,
		`{"series":7,"all_metrics":1,"all_labels":0,"metrics":[{"name":"up","count":7}],"labels":[],"values":[]}`, data)
	_, data = sendRequest(h, "ann", Prefix+"series?seen=true")
	require.JSONEq(t, `{"series":7,"all_metrics":1,"all_labels":0,"labels":[],"values":[],
		"metrics":[{"name":"up","count":7,"first":"1970-01-01T00:00:00Z","last":"1970-01-02T00:00:00Z"}]}`, data)
	require.Equal(t, []any{"team-a", "team-b3",
		counts.SeriesQuery{Tenant: "team-b", Window: 20776, Metric: "up", Label: "job", Limit: 5},
		counts.SeriesQuery{Tenant: "team-a", Unsealed: true, Limit: 50}, "team-a[up]"}, store.asked)

	for user, want := range map[string]string{
		"ann": `{"tenants":["team-a"],"all":1}`, "bob": `{"tenants":["team-b","team-a"],"all":2}`,
		"ops": `{"tenants":["team-b","default","team-a"],"all":3}`,
	} {
		_, data := sendRequest(h, user, Prefix+"tenants")
		require.JSONEq(t, want, data, user)
	}
	_, data = sendRequest(h, "ann", Prefix+"session")
	require.Contains(t, data, `"tenants":["team-a"],"any_tenant":false,"default_tenant":"team-a"`)
	for user, roles := range map[string]string{
		"ann": `"metrics":false,"admin":false`, "watch": `"metrics":true,"admin":false`,
		"ops": `"metrics":true,"admin":true`,
	} {
		_, data = sendRequest(h, user, Prefix+"session")
		require.Contains(t, data, roles, user)
	}
	_, data = sendRequest(h, "ann", Prefix+"work")
	require.Contains(t, data, `"waiting_slots":4`)
	require.NotContains(t, data, "a secret")
	_, data = sendRequest(h, "ops", Prefix+"work")
	require.Contains(t, data, "series a secret")
	_, data = sendRequest(h, "ann", Prefix+"evaluator")
	require.JSONEq(t, `{"name":"","here":true,"rules":false,"shared":false}`, data)
	_, data = sendRequest(h, "ops", Prefix+"evaluator")
	require.Contains(t, data, "a secret")
	_, data = sendRequest(h, "ops", Prefix+"health")
	require.Contains(t, data, `"found"`)
}

func TestBadRequests(t *testing.T) {
	o := testOptions()
	for path, word := range map[string]string{
		"metric": "name must have 1 to 1024 bytes", "series?limit=0": "limit must be a number from 1 to 1000",
		"series?limit=1001": "limit", "series?window=today": "window must be", "churn?windows=61": "windows must be",
	} {
		r := get(t, o, Prefix+path)
		require.Equal(t, http.StatusBadRequest, r.StatusCode)
		require.Contains(t, readBody(t, r), word)
	}
	for err, code := range map[error]int{
		meter.ErrQueryTooLarge: http.StatusUnprocessableEntity, storage.ErrNotReady: http.StatusServiceUnavailable,
		errors.New("x"): http.StatusInternalServerError,
	} {
		o.Store = &fakeStore{err: err}
		for _, name := range []string{"series", "churn", "windows", "tenants", "health"} {
			require.Equal(t, code, get(t, o, Prefix+name).StatusCode, "%s: %v", name, err)
		}
	}
	o = testOptions()
	o.Ready = func() error { return storage.ErrNotReady }
	require.Equal(t, http.StatusServiceUnavailable, get(t, o, Prefix+"series").StatusCode)
	require.Contains(t, readBody(t, get(t, o, Prefix+"session")), `"not_ready":"the head`)
}

func TestTheDoctorIsntAskedAllTheTime(t *testing.T) {
	asked := 0
	o := testOptions()
	o.Examine = func(context.Context) []doctor.Finding { asked++; return nil }
	a := newAPI(o)
	for range 3 {
		_, _, err := a.examineStore(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 1, asked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := a.examineStore(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTrialsOfRules(t *testing.T) {
	h := withAuth(t, testOptions())
	try := func(body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, Prefix+"relabel", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer ann")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for body, word := range map[string]string{
		`x`: "must be JSON", `{"rules":"[{regex: x}]"}`: "target_label",
		`{"rules":"[]"}`: "no rules apply to tenant team-a", `{"range_seconds":-1}`: "range_seconds",
		`{"range_seconds":1e9}`: "range_seconds",
		`{"start":"2026-01-02T00:00:00Z","end":"2026-01-01T00:00:00Z"}`: "start must be before end",
		`{"start":"2025-01-02T00:00:00Z","end":"2026-01-01T00:00:00Z"}`: "by at most 7 days",
		`{"retention":{"raw":-1}}`:                                      "retention", `{"retention":{"day":1}}`: "retention",
		`{"rules":"` + strings.Repeat(" ", maxTrialBody) + `"}`: "bytes",
	} {
		code, text := try(body)
		require.Equal(t, http.StatusBadRequest, code, body[:min(len(body), 80)])
		require.Contains(t, text, word)
	}
	code, text := try(
		`{"rules":"[{regex: a, action: labeldrop}]","start":"2026-01-01T00:00:00Z","end":"2026-01-02T00:00:00Z","retention":{"raw":86400}}`,
	)
	require.Equal(t, http.StatusOK, code, text)
	var answer struct{ Data trialAnswer }
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	require.Equal(t, "2026-01-01T00:00:00Z", answer.Data.Rules.Start.Format(time.RFC3339))
	require.Equal(t, "team-a", answer.Data.Rules.Refusal)
	require.Equal(t, retentionTrial{
		Resolution: "raw", Now: 3600, Then: 86400, DayBytes: 10, BytesNow: 13, Windows: 2, Bytes: 7, ExpiredWindows: 1,
		ExpiredBytes: 2, BytesAtRest: 7.5,
	}, answer.Data.Retention[0],
		"three quarters of the samples are left by the rules")
	code, text = try(`{"retention":{"raw":0}}`)
	require.Equal(t, http.StatusOK, code, text)
	require.Contains(t, text, `"rules":null`)
	require.Contains(t, text, `"windows":0,"bytes":0,"expired_windows":1,"expired_bytes":2,"bytes_at_rest":-1`)
}
