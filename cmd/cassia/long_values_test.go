package main

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// longLabel returns a remote write 1.0 request with two series. One has a label value of the given length.
func longLabel(t *testing.T, metric string, at time.Time, bytes int) []byte {
	t.Helper()
	var request prompb.WriteRequest
	for _, value := range []string{"short", strings.Repeat("v", bytes)} {
		request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
			Labels:  []prompb.Label{{Name: "__name__", Value: metric}, {Name: "path", Value: value}},
			Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: 1}},
		})
	}
	body, err := request.Marshal()
	require.NoError(t, err)
	return snappy.Encode(nil, body)
}

// TestLongLabelValues checks how series with a too long label value are handled for each setting of long_label_values.
// It changes the setting by reloading the limits file.
func TestLongLabelValues(t *testing.T) {
	t.Parallel()
	limits := filepath.Join(t.TempDir(), "limits.yml")
	set := func(text string) { require.NoError(t, os.WriteFile(limits, []byte(text), 0o600)) }
	set("tenants: {}")
	r := startServe(t, "--storage.path="+t.TempDir(), "--limits.file="+limits, "--web.enable-lifecycle")
	reload := func(text string) {
		set(text)
		code, answer := r.Post(t, "/-/reload", nil)
		require.Equal(t, http.StatusOK, code, answer)
	}
	at := time.Now().Truncate(time.Second)
	count := func(query string) string {
		require.Eventually(t, func() bool { code, _ := r.Get(t, "/-/ready"); return code == http.StatusOK },
			cassiatest.Patience, 5*time.Millisecond)
		code, text := r.Get(t, "/api/v1/query?query="+url.QueryEscape("count("+query+") or vector(0)")+"&time="+
			strconv.FormatInt(at.Unix(), 10))
		require.Equal(t, http.StatusOK, code, text)
		_, value, _ := strings.Cut(text, `"value":[`)
		return strings.Split(value, `"`)[1]
	}

	code, text := r.Post(t, "/api/v1/write", longLabel(t, "rejected", at, 5000))
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, text, "label_value_bytes in --limits.file", "it names the limit that can be raised")
	require.Equal(t, "1", count("rejected"))

	reload("defaults: {long_label_values: truncate}")
	_, text = r.Get(t, "/api/v1/status/limits")
	require.Contains(t, text, `"limits":{"long_label_values":"truncate"}`)
	for range 2 { // The second request finds the existing series by its original labels.
		code, text = r.Post(t, "/api/v1/write", longLabel(t, "truncated", at, 5000))
		require.Equal(t, http.StatusNoContent, code, text)
	}
	code, text = r.Post(t, "/api/v1/write", longLabel(t, "truncated", at, 5001))
	require.Equal(t, http.StatusNoContent, code, text)
	require.Equal(t, "2", count(`truncated{path=~"v+[(]hash:[0-9a-f]{16}[)]"}`),
		"values that differ are different series")
	_, metrics := r.Get(t, "/metrics")
	require.EqualValues(
		t, 2, cassiatest.Metric(t, metrics, `cassia_tenant_label_values_truncated_total{tenant="default"}`),
	)

	reload("defaults: {long_label_values: truncate, label_value_bytes: 23}")
	code, text = r.Post(t, "/api/v1/write", longLabel(t, "hashed", at, 24))
	require.Equal(t, http.StatusNoContent, code, text)
	require.Equal(t, "1", count(`hashed{path=~"[(]hash:[0-9a-f]{16}[)]"}`), "a small limit leaves the hash")
	set("defaults: {long_label_values: truncate, label_value_bytes: 22}")
	code, text = r.Post(t, "/-/reload", nil)
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, text, "label_value_bytes: must be at least 23 with long_label_values: truncate")

	reload("defaults: {label_value_bytes: 8000}")
	code, text = r.Post(t, "/api/v1/write", longLabel(t, "truncated", at, 5000))
	require.Equal(t, http.StatusNoContent, code, text)
	require.Equal(t, "1", count(`truncated{path=~"v+"}`), "the whole value, once it may be that long")

	attribute := func(metric string) {
		body := `{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"` +
			metric + `"}},` +
			`{"key":"process.command_line","value":{"stringValue":"java ` + strings.Repeat("-x ", 3000) +
			`"}}]},"scopeMetrics":[{"metrics":[{"name":"` + metric +
			`","gauge":{"dataPoints":[{"timeUnixNano":"` + strconv.FormatInt(at.UnixNano(), 10) +
			`","asDouble":1}]}}]}]}]}`
		answer, err := http.Post(r.URL+"/api/v1/otlp/v1/metrics", "application/json", bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
	reload("defaults: {long_label_values: reject}")
	attribute("without")
	require.Equal(t, "0", count(`target_info{job="without"}`))
	reload("defaults: {}")
	attribute("with")
	require.Equal(t, "1", count(`target_info{job="with",process_command_line=~"java -x .*[(]hash:[0-9a-f]{16}[)]"}`),
		"a long attribute costs no target_info")
	require.NoError(t, r.stop())
	require.Equal(t, 1, strings.Count(r.log.String(), "label=path"), "each label is named once")
	require.Equal(t, 1, strings.Count(r.log.String(), "label=process.command_line"))
}
