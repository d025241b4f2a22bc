package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

// longText is longer than a Prometheus label value can be.
var longText = strings.Repeat("x", 17<<20)

// TestLabelsOfSeventeenMebibytes checks that all write protocols reject labels longer than Prometheus supports, without
// a panic.
func TestLabelsOfSeventeenMebibytes(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir(), "--otlp.promote-all-resource-attributes")
	written := contentHeaders("application/x-protobuf", "snappy")
	otlp := func(resource, attribute, metric string) func() io.Reader {
		text, err := json.Marshal(map[string]any{"resourceMetrics": []any{map[string]any{
			"resource": map[string]any{"attributes": []any{
				map[string]any{"key": "service.name", "value": map[string]any{"stringValue": resource}},
			}},
			"scopeMetrics": []any{map[string]any{"metrics": []any{map[string]any{"name": metric,
				"gauge": map[string]any{"dataPoints": []any{map[string]any{
					"asDouble": 1, "timeUnixNano": fmt.Sprint(time.Now().UnixNano()),
					"attributes": []any{map[string]any{"key": "a", "value": map[string]any{"stringValue": attribute}}},
				}}}}}}},
		}}})
		require.NoError(t, err)
		return content(text)
	}
	series := func(name, value string) func() io.Reader {
		body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "long"}, {Name: name, Value: value}},
			Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
		}}}).Marshal()
		require.NoError(t, err)
		return content(snappy.Encode(nil, body))
	}
	of := contentHeaders("application/json", "")
	for about, a := range map[string]attack{
		"value":                 {"/api/v1/write", series("a", longText), written, []int{400}},
		"name":                  {"/api/v1/write", series(longText, "a"), written, []int{400}},
		"attribute of OTLP":     {"/api/v1/otlp/v1/metrics", otlp("a", longText, "m"), of, []int{400, 200}},
		"resource of OTLP":      {"/api/v1/otlp/v1/metrics", otlp(longText, "a", "m"), of, []int{400, 200}},
		"metric's name of OTLP": {"/api/v1/otlp/v1/metrics", otlp("a", "a", longText), of, []int{400, 200}},
	} {
		code, text := r.sendAttack(t, a)
		require.Contains(t, a.codes, code, "%s: %.300s", about, text)
		t.Logf("%s: %d %.200s", about, code, text)
	}
	_, metrics := r.Get(t, "/metrics")
	require.Contains(t, metrics, "cassia_http_panics_total 0")
}

// TestAnnotationOfSeventeenMebibytes checks that an alert with a 17 MiB annotation is reported as an error of its rule,
// at the start and after a reload. The server and the other rules continue to work.
func TestAnnotationOfSeventeenMebibytes(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yml")
	template := `{{ $x := "0123456789abcdef" }}` + strings.Repeat(`{{ $x = printf "%s%s" $x $x }}`, 21) + `{{ $x }}`
	text, err := json.Marshal(map[string]any{
		"groups": []any{map[string]any{"name": "g", "interval": "1s", "rules": []any{ // JSON is YAML.
			map[string]any{"alert": "Long", "expr": "vector(1)", "annotations": map[string]string{"text": template}},
			map[string]any{"record": "other", "expr": "vector(2)"},
		}}},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(rules, text, 0o600))
	r := startServe(t, "--storage.path="+t.TempDir(), "--rule.files="+rules, "--web.enable-lifecycle")
	answer, err := http.Post(r.URL+"/-/reload", "", nil) //nolint:noctx // The server is the test's.
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Eventually(t, func() bool {
		_, text := r.Get(t, "/api/v1/rules")
		return strings.Contains(text, "alert too large") && strings.Contains(text, `"health":"err"`) &&
			strings.Contains(text, `"health":"ok"`)
	}, time.Minute, 50*time.Millisecond)
	require.Eventually(
		t, func() bool { return r.Value(t, "other", time.Now()) == "2" }, time.Minute, 50*time.Millisecond,
	)
	_, metrics := r.Get(t, "/metrics")
	require.Contains(t, metrics, "prometheus_rule_evaluation_failures_total")
}

// TestRelabelingThatDoubles sends a series whose label is doubled by 22 rules. The series is rejected with the number
// of the rule, by a status that the sender doesn't retry, and the rest of the request is stored.
func TestRelabelingThatDoubles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relabel.yml")
	require.NoError(t, os.WriteFile(
		file,
		bytes.Repeat([]byte("- {source_labels: [grow, grow], separator: '', regex: (.+), target_label: grow}\n"), 22),
		0o600,
	))
	r := startServe(t, "--storage.path="+t.TempDir(), "--write.relabel-file="+file)
	now := time.Now().Truncate(time.Second)
	sample := []prompb.Sample{{Timestamp: now.UnixMilli(), Value: 3}}
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "grow", Value: "abcdefgh"}}, Samples: sample},
		{Labels: []prompb.Label{{Name: "__name__", Value: "fine"}}, Samples: sample},
	}}).Marshal()
	require.NoError(t, err)
	code, text := r.sendAttack(t, attack{
		path: "/api/v1/write", body: content(snappy.Encode(nil, body)),
		header: contentHeaders("application/x-protobuf", "snappy"),
	})
	require.Equal(t, http.StatusBadRequest, code, text)
	require.Contains(t, text, "1 of 2 samples rejected: series_too_long")
	require.Contains(t, text, "relabeling rule 15 may create labels longer than")
	require.Equal(t, "3", r.Value(t, "fine", now))
	_, metrics := r.Get(t, "/metrics")
	require.Contains(t, metrics, `cassia_relabel_refused_total{rule="15",rules=""} 1`)
	require.Contains(t, metrics, "cassia_http_panics_total 0")
}
