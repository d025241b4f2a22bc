package jsonapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

const testSeconds = 1_777_636_800 // testNow

func TestWriteSingle(t *testing.T) {
	r := newRig(t, rigOptions{})
	w := post(r.WriteSingle, fmt.Sprintf(`{"tenant": "t-1", "metricName": "cpu_idle",
		"tags": {"os": "linux", "host": "h-1", "deployment": "prod"}, "ts": %d, "value": 491}`, testSeconds))
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
	require.Equal(t, map[string]string{
		`{__name__="cpu_idle", deployment="prod", host="h-1", os="linux"}`: "491@1777636800000",
	}, r.stored(t, "t-1"))
	require.Empty(t, r.stored(t, tenant.Default))
}

func TestWriteFormsOfTimesAndValues(t *testing.T) {
	r := newRig(t, rigOptions{})
	for name, c := range map[string]struct{ ts, value, want string }{
		"seconds":    {"1777636800", "1", "1@1777636800000"},
		"a fraction": {"1777636800.25", "-0.5", "-0.5@1777636800250"},
		"exponent":   {"1.7776368e9", "1e3", "1000@1777636800000"},
		"text":       {`"2026-05-01T12:00:00Z"`, `"NaN"`, "NaN@1777636800000"},
		"zone":       {`"2026-05-01T14:00:00.5+02:00"`, `"Infinity"`, "+Inf@1777636800500"},
		"negative":   {`"2026-05-01T11:59:59.999999Z"`, `"-Infinity"`, "-Inf@1777636799999"},
		"no tags":    {"1777636800", "0.1", "0.1@1777636800000"},
	} {
		name = strings.ReplaceAll(name, " ", "_")
		w := post(r.WriteSingle, fmt.Sprintf(
			`{"metricName": "m_%s", "tags": null, "ts": %s, "value": %s, "unknown": 1}`, name, c.ts, c.value,
		))
		require.Equal(t, http.StatusNoContent, w.Code, w.Body)
		require.Equal(t, c.want, r.stored(t, tenant.Default)[`{__name__="m_`+name+`"}`])
	}
}

// Valid points are stored; the response lists the others.
func TestWriteNamesWhatItRefuses(t *testing.T) {
	r := newRig(t, rigOptions{})
	p := func(tags string) string {
		return fmt.Sprintf(`{"metricName": "m", %s "ts": %d, "value": 1}`, tags, testSeconds)
	}
	long := strings.Repeat("x", 5000)
	points := []struct{ point, field, reason string }{
		{p(``), "", ""},
		{p(`"tags": {"": "x"},`), "tags", reasonInvalid},
		{p(`"tags": {"a": ""},`), "tags.a", reasonInvalid},
		{p(`"tags": {"a": 1},`), "tags", reasonInvalid},
		{p(`"tags": {"__name__": "n"},`), "tags.__name__", reasonInvalid},
		{p(`"tags": ["a"],`), "tags", reasonInvalid},
		{p(`"tags": {"a": "` + long + `"},`), "tags", storage.ReasonLabelValueTooLong},
		{p(`"tags": {"a": "` + strings.Repeat(long, 110) + `"},`), "tags", reasonInvalid},
		{p(`"tenant": "a b",`), "tenant", reasonInvalid},
		{p(`"tenant": 3,`), "tenant", reasonInvalid},
		{p(`"tenant": "secret",`), "tenant", reasonForbidden},
		{p(`"metricName": "",`), "metricName", reasonInvalid},
		{`{"ts": 1, "value": 1}`, "metricName", reasonInvalid},
		{`{"metricName": "m", "value": 1}`, "ts", reasonInvalid},
		{`{"metricName": "m", "ts": "yesterday", "value": 1}`, "ts", reasonInvalid},
		{`{"metricName": "m", "ts": 1e300, "value": 1}`, "ts", reasonInvalid},
		{`{"metricName": "m", "ts": 1, "value": 1}`, "ts", adapter.ReasonTooOld},
		{`{"metricName": "m", "ts": 1777636800000, "value": 1}`, "ts", adapter.ReasonTooFarAhead},
		{fmt.Sprintf(`{"metricName": "m", "ts": %d}`, testSeconds), "value", reasonInvalid},
		{fmt.Sprintf(`{"metricName": "m", "ts": %d, "value": "1"}`, testSeconds), "value", reasonInvalid},
		{fmt.Sprintf(`{"metricName": "m", "ts": %d, "value": 1e999}`, testSeconds), "value", reasonInvalid},
		{p(`"metricName": "n",`), "metricName", reasonInvalid},
		{p(`"tags": {"a": "x"}, "tags": {"a": "x"},`), "tags", reasonInvalid},
		{p(`"tags": {"a": "x", "b": "y", "a": "z"},`), "tags.a", reasonInvalid},
		{p(`"tags": {"a": "x", "\u0061": "x"},`), "tags.a", reasonInvalid},
		{p(`"tags": {"a": "x"}, "Tags": {"b": "y"},`), "tags", reasonInvalid},
		{p(`"Tags": {"a": "x"},`), "tags", reasonInvalid},
		{p(`"TENANT": "t1",`), "tenant", reasonInvalid},
		{p("\"tags\": {\"a\": \"\xff\"},"), "tags.a", reasonInvalid},
		{p("\"tags\": {\"\xc3(\": \"a\"},"), "tags", reasonInvalid},
		{p(`"tags": {"a": "\ud800"},`), "tags.a", reasonInvalid},
		{p(`"other": "` + "\xff" + `",`), "other", reasonInvalid},
		{`7`, "", reasonInvalid},
		{`null`, "metricName", reasonInvalid},
		{p(`"tags": {"z": "1"},`), "", ""},
	}
	var all []string
	rejected := 0
	for _, one := range points {
		all = append(all, one.point)
		if one.reason != "" {
			rejected++
		}
	}
	w := post(r.Write, "["+strings.Join(all, ",")+"]")
	require.Equal(t, http.StatusBadRequest, w.Code)
	e := decodeError(t, w)
	require.Equal(t, 2, *e.Written)
	require.Equal(t, rejected, *e.Refused)
	require.Len(t, e.Errors, rejected)
	for _, one := range e.Errors {
		want := points[one.Index]
		require.Equal(t, [2]string{want.field, want.reason}, [2]string{one.Field, one.Reason},
			"%d: %s: %s", one.Index, want.point[:min(len(want.point), 99)], one.Message)
		require.NotEmpty(t, one.Message)
	}
	require.Len(t, r.stored(t, tenant.Default), 2)
}

func TestWriteTellsTheFirstRefusals(t *testing.T) {
	r := newRig(t, rigOptions{})
	w := post(r.Write, "["+strings.Repeat("1,", 999)+"1]")
	e := decodeError(t, w)
	require.Equal(t, 1000, *e.Refused)
	require.Len(t, e.Errors, maxErrors)
	var points []string
	for i := range maxTenants + 1 {
		points = append(points, fmt.Sprintf(`{"tenant": "t%d", "metricName": "m", "ts": %d, "value": 1}`,
			i, testSeconds))
	}
	e = decodeError(t, post(r.Write, "["+strings.Join(points, ",")+"]"))
	require.Equal(t, maxTenants, *e.Written)
	require.Equal(t, []pointError{{
		Index: maxTenants, Field: "tenant", Reason: reasonTenants,
		Message: "a request may contain points of at most 100 tenants",
	}}, e.Errors)
	require.Len(t, r.stored(t, "t99"), 1)
}

// A request that doesn't match the API's description is rejected as a whole, and none of its points is written.
func TestWriteRefusesTheRequest(t *testing.T) {
	r := newRig(t, rigOptions{api: func(o *Options) { o.MaxBody = 1000 }})
	good := fmt.Sprintf(`{"metricName": "m", "ts": %d, "value": 1}`, testSeconds)
	for body, code := range map[string]int{
		"":                 http.StatusBadRequest,
		"[" + good + ",":   http.StatusBadRequest,
		"[" + good + "] x": http.StatusBadRequest,
		good:               http.StatusBadRequest,
		`"m"`:              http.StatusBadRequest,
		"[" + good + strings.Repeat(" ", 1000) + "]": http.StatusRequestEntityTooLarge,
	} {
		w := post(r.Write, body)
		require.Equal(t, code, w.Code, body)
		decodeError(t, w)
	}
	w := post(r.WriteSingle, "["+good+"]")
	require.Equal(t, http.StatusBadRequest, w.Code)
	for header, value := range map[string]string{"Content-Type": "text/plain", "Content-Encoding": "gzip"} {
		q := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("["+good+"]"))
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set(header, value)
		w := httptest.NewRecorder()
		r.Write(w, q)
		require.Equal(t, http.StatusUnsupportedMediaType, w.Code)
		decodeError(t, w)
	}
	w = get(r.Write, "")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, http.MethodPost, w.Header().Get("Allow"))
	require.Empty(t, r.stored(t, tenant.Default))
	require.Equal(t, http.StatusNoContent, post(r.Write, "["+good+"]").Code, "and goes on")
	require.Equal(t, http.StatusNoContent, post(r.Write, "[]").Code)
	require.Zero(t, r.budget.Used())
}

func TestWriteWithoutRoomOrEngine(t *testing.T) {
	good := fmt.Sprintf(`{"metricName": "m", "ts": %d, "value": 1}`, testSeconds)
	full := newRig(t, rigOptions{storage: func(o *storage.Options) { o.HeadBytes = 1100 }})
	require.Equal(t, http.StatusNoContent, post(full.WriteSingle, good).Code, "the head was empty")
	w := post(full.WriteSingle, strings.Replace(good, `"m"`, `"other"`, 1))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "30", w.Header().Get("Retry-After"))
	require.Equal(t, adapter.ReasonTooManySeries, decodeError(t, w).Errors[0].Reason)

	down := newRig(t, rigOptions{rule: func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Stage {
			return faultengine.Fail(engine.ErrUnavailable)
		}
		return faultengine.Pass()
	}})
	w = post(down.WriteSingle, good)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Zero(t, *decodeError(t, w).Written)

	busy := newRig(t, rigOptions{api: func(o *Options) { o.MaxBody, o.MaxInFlight = 100, 200 }})
	w = post(busy.Write, "[1,2,3,4,5,6,7,8,9]")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Zero(t, busy.budget.Used())
}

func FuzzWrite(f *testing.F) {
	r := newRig(f, rigOptions{})
	f.Add(`[{"metricName":"m","tags":{"a":"b"},"ts":1777636800,"value":1}]`)
	f.Add(`[{"metricName":"\u0000","tags":{"a\xff":"b"},"ts":"2026-05-01T12:00:00Z","value":"NaN","tenant":"x"}]`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, h := range []http.HandlerFunc{r.Write, r.WriteSingle} {
			w := post(h, body)
			require.Contains(t, []int{http.StatusNoContent, http.StatusBadRequest, http.StatusForbidden}, w.Code)
			if w.Code != http.StatusNoContent {
				decodeError(t, w)
			}
		}
		require.Zero(t, r.budget.Used())
	})
}

// TestWriteIsStrict sends points whose JSON is ambiguous. They must not be stored.
func TestWriteIsStrict(t *testing.T) {
	r := newRig(t, rigOptions{})
	for name, body := range map[string]string{
		"a key twice":              `[{"metricName": "m", "metricName": "n", "ts": %d, "value": 1}]`,
		"a tag twice":              `[{"metricName": "m", "tags": {"a": "b", "a": "c"}, "ts": %d, "value": 1}]`,
		"another case":             `[{"MetricName": "m", "ts": %d, "value": 1}]`,
		"another case besides":     `[{"metricName": "m", "VALUE": 2, "ts": %d, "value": 1}]`,
		"a name that isn't UTF-8":  "[{\"metricName\": \"m\xff\", \"ts\": %d, \"value\": 1}]",
		"a tag that isn't UTF-8":   "[{\"metricName\": \"m\", \"tags\": {\"a\": \"\xff\"}, \"ts\": %d, \"value\": 1}]",
		"half of a surrogate pair": `[{"metricName": "m\ud800", "ts": %d, "value": 1}]`,
	} {
		w := post(r.Write, fmt.Sprintf(body, testSeconds))
		require.Equal(t, http.StatusBadRequest, w.Code, "%s: %s", name, w.Body)
		decodeError(t, w)
	}
	require.Empty(t, r.stored(t, tenant.Default))
}

// droppingBatch is a Batch that drops points below zero, as relabeling rules may.
type droppingBatch struct{ adapter.Batch }

func (d droppingBatch) Float(ref *storage.Series, t, st int64, v float64) error {
	if v < 0 {
		return adapter.ErrDropped
	}
	return d.Batch.Float(ref, t, st, v)
}

// A point dropped by a rule is neither stored nor reported as rejected.
func TestPointsThatRulesDrop(t *testing.T) {
	r := newRig(t, rigOptions{api: func(o *Options) {
		o.Rules = func(_ string, b *storage.Batch) adapter.Batch { return droppingBatch{b} }
	}})
	point := func(v int) string {
		return fmt.Sprintf(`{"metricName":"m","tags":{"a":"b"},"ts":1777636800,"value":%d}`, v)
	}
	w := post(r.Write, "["+point(1)+","+point(-1)+"]")
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
	w = post(r.Write, "["+point(-2)+"]")
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
	require.Equal(t, map[string]string{`{__name__="m", a="b"}`: "1@1777636800000"}, r.stored(t, "default"))
	require.EqualValues(t, 1, testutil.ToFloat64(r.points.WithLabelValues("stored")))
	require.EqualValues(t, 2, testutil.ToFloat64(r.points.WithLabelValues("dropped")))
}

// A sender that isn't authorized for any of its points gets 403, or 400 if there are other errors as well.
func TestPointsOfTenantsThatAreForbidden(t *testing.T) {
	r := newRig(t, rigOptions{})
	forbidden := `{"metricName":"m","ts":1777636800,"value":1,"tenant":"secret"}`
	w := post(r.Write, "["+forbidden+","+forbidden+"]")
	require.Equal(t, http.StatusForbidden, w.Code, w.Body)
	w = post(r.Write, "["+forbidden+`,{"metricName":"m","ts":1,"value":1}]`)
	require.Equal(t, http.StatusBadRequest, w.Code, w.Body)
	require.Empty(t, r.stored(t, "secret"))
}

// A request with a point ahead of the server's clock, which may be slow, is rejected with 503, so that it is retried.
// Its other points are stored.
func TestPointsThatMayBeAhead(t *testing.T) {
	at := testNow
	r := newRig(t, rigOptions{storage: storagetest.Clock(func() time.Time { return at })})
	p := func(metric string, seconds int64) string {
		return fmt.Sprintf(`{"metricName": %q, "tags": {"a": "b"}, "ts": %d, "value": 1}`, metric, seconds)
	}
	body := "[" + p("good", testSeconds) + "," + p("ahead", testSeconds+3600) + "," + p("old", 1) + "]"
	w := post(r.Write, body)
	require.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	e := decodeError(t, w)
	require.Equal(t, 1, *e.Written)
	require.Equal(t, 2, *e.Refused)
	require.Equal(t, adapter.ReasonMaybeAhead, e.Errors[0].Reason)
	require.Equal(t, "ts", e.Errors[0].Field)
	at = at.Add(15 * time.Minute)
	w = post(r.Write, body)
	require.Equal(t, http.StatusBadRequest, w.Code, w.Body)
}
