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
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

const relabelRules = `
write_relabel_configs:
- {source_labels: [__name__], regex: noise.*, action: drop}
- {source_labels: [__name__], regex: old_(.*), target_label: __name__, replacement: new_$1}
- {regex: pod, action: labeldrop}
tenants:
  free: {write_relabel_configs: []}
`

// sendRequest sends a request and returns the response and its body.
func (r running) sendRequest(
	t *testing.T, method, path string, header map[string]string, body []byte,
) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, r.URL+path, bytes.NewReader(body))
	require.NoError(t, err)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// seriesNames returns the series of a tenant.
func (r running) seriesNames(t *testing.T, tenant string) (list []string) {
	t.Helper()
	_, text := r.sendRequest(t, http.MethodGet, "/api/v1/series?match[]={__name__=~\".%2B\"}",
		map[string]string{"X-Scope-OrgID": tenant}, nil)
	var answer struct{ Data []map[string]string }
	require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
	for _, ls := range answer.Data {
		name := ls["__name__"]
		if pod := ls["pod"]; pod != "" {
			name += "/" + pod
		}
		list = append(list, name)
	}
	return list
}

// TestRelabelingOfAllWaysIn checks that the rules are applied to the series of every write protocol. The rules drop
// some of the series, rename some, and leave some unchanged.
func TestRelabelingOfAllWaysIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relabel.yml")
	require.NoError(t, os.WriteFile(file, []byte(relabelRules), 0o600))
	r := startServe(t, "--storage.path="+t.TempDir(), "--write.relabel-file="+file, "--web.enable-lifecycle")
	ms := time.Now().UnixMilli()

	send1 := func(tenant string, names ...string) {
		req := &prompb.WriteRequest{}
		for _, name := range names {
			req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
				Labels:  []prompb.Label{{Name: "__name__", Value: name}, {Name: "pod", Value: "p"}},
				Samples: []prompb.Sample{{Timestamp: ms, Value: 1}},
			})
			req.Metadata = append(req.Metadata, prompb.MetricMetadata{
				Type: prompb.MetricMetadata_GAUGE, MetricFamilyName: name, Help: "help of " + name,
			})
		}
		body, err := req.Marshal()
		require.NoError(t, err)
		code, text := r.PostAs(t, tenant, "/api/v1/write", snappy.Encode(nil, body))
		require.Equal(t, http.StatusNoContent, code, text)
	}
	send1("", "noise1", "old_1", "up1")
	send1("free", "noise1", "old_1")

	v2 := &writev2.Request{Symbols: []string{"", "__name__", "noise2", "old_2", "trace_id", "t"}}
	for _, name := range []uint32{2, 3} {
		v2.Timeseries = append(v2.Timeseries, writev2.TimeSeries{
			LabelsRefs: []uint32{1, name}, Samples: []writev2.Sample{{Timestamp: ms, Value: 2}},
			Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{4, 5}, Value: 1, Timestamp: ms}},
		})
	}
	body, err := v2.Marshal()
	require.NoError(t, err)
	resp, text := r.sendRequest(t, http.MethodPost, "/api/v1/write", map[string]string{
		"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request", "Content-Encoding": "snappy",
	}, snappy.Encode(nil, body))
	require.Equal(t, http.StatusNoContent, resp.StatusCode, text)
	require.Equal(t, "2", resp.Header.Get("X-Prometheus-Remote-Write-Samples-Written"),
		"a sender would count less as failed")
	require.Equal(t, "2", resp.Header.Get("X-Prometheus-Remote-Write-Exemplars-Written"))

	resp, text = r.sendRequest(
		t, http.MethodPost, "/api/v1/otlp/v1/metrics", map[string]string{"Content-Type": "application/json"},
		[]byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
		{"name":"noise3","gauge":{"dataPoints":[{"timeUnixNano":"`+fmt.Sprint(ms)+`000000","asDouble":3}]}},
		{"name":"old_3","gauge":{"dataPoints":[{"timeUnixNano":"`+fmt.Sprint(ms)+`000000","asDouble":3}]}}]}]}]}`),
	)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	require.NotContains(t, text, "rejected")

	resp, text = r.sendRequest(t, http.MethodPost, "/api/write", map[string]string{"Content-Type": "application/json"},
		fmt.Appendf(nil,
			`[{"metricName":"noise4","tags":{"a":"b"},"ts":%[1]d,"value":4},{"metricName":"old_4","tags":{"a":"b"},"ts":%[1]d,"value":4}]`,
			ms/1000))
	require.Equal(t, http.StatusNoContent, resp.StatusCode, text)

	require.Eventually(t, func() bool { code, _ := r.Get(t, "/-/ready"); return code == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	require.ElementsMatch(t, []string{"new_1", "up1", "new_2", "new_3", "new_4"}, r.seriesNames(t, "default"))
	require.ElementsMatch(t, []string{"noise1/p", "old_1/p"}, r.seriesNames(t, "free"))
	require.Eventually(t, func() bool {
		_, text = r.Get(t, "/api/v1/metadata")
		return strings.Contains(text, `"new_1"`)
	}, cassiatest.Patience, 50*time.Millisecond)
	require.NotContains(t, text, "noise1")
	_, metrics := r.Get(t, "/metrics")
	require.EqualValues(t, 4, cassiatest.Metric(t, metrics, `cassia_relabel_dropped_samples_total{rule="1",rules=""}`))
	require.EqualValues(
		t, 1, cassiatest.Metric(t, metrics, `cassia_relabel_dropped_exemplars_total{rule="1",rules=""}`),
	)
	require.EqualValues(t, 2, cassiatest.Metric(t, metrics, `cassia_write_samples_total{result="dropped"}`))
	require.EqualValues(t, 1, cassiatest.Metric(t, metrics, `cassia_json_points_total{result="dropped"}`))
	_, text = r.Get(t, "/api/v1/cassia/relabel")
	require.Contains(t, text,
		`{"number":1,"text":"{source_labels: [\"__name__\"], regex: \"noise.*\", action: drop}","dropped_samples":4,"dropped_exemplars":1}`)

	// If the file is invalid, the rules stay unchanged and the error names the cause.
	require.NoError(t, os.WriteFile(file, []byte("- {source_labels: [__name__], regx: x, action: drop}"), 0o600))
	code, text := r.Post(t, "/-/reload", nil)
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, text, "line 1, rule 1: unknown key regx")
	send1("", "noise5")
	require.NotContains(t, r.seriesNames(t, "default"), "noise5")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	code, text = r.Post(t, "/-/reload", nil)
	require.Equal(t, http.StatusOK, code, text)
	send1("", "noise1", "old_1")
	require.ElementsMatch(
		t, []string{"new_1", "up1", "new_2", "new_3", "new_4", "noise1/p", "old_1/p"}, r.seriesNames(t, "default"),
	)
}

// TestUnreadRows requires that only unreadable rows count as such, not warnings about the result.
func TestUnreadRows(t *testing.T) {
	table := format.TableOf(rollup.Raw)
	require.True(t, isUnread(fmt.Errorf("a: %w", &damage.CorruptRowError{Table: table})))
	require.True(t, isUnread(&damage.DamagedRowsError{Table: table}))
	require.False(t, isUnread(query.ErrLateUnsealed))
}
