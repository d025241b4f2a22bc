package cassiatest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

// Server is a running server, in the test's process or in another.
type Server struct {
	// URL is the URL of the server's HTTP listener without a path.
	URL string
}

// Get sends a request and returns the status and the body of the response.
func (s Server) Get(t *testing.T, path string) (int, string) {
	t.Helper()
	answer, err := http.Get(s.URL + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// Post sends a compressed remote write request for the default tenant, like PostAs.
func (s Server) Post(t *testing.T, path string, body []byte) (int, string) {
	t.Helper()
	return s.PostAs(t, "", path, body)
}

// PostAs sends a body with the headers of remote write. If tenant is "", the request names no tenant. It returns the
// status and the body of the response.
func (s Server) PostAs(t *testing.T, tenant, path string, body []byte) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, s.URL+path, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	if tenant != "" {
		request.Header.Set("X-Scope-OrgID", tenant)
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// Write sends one sample of a metric.
func (s Server) Write(t *testing.T, metric string, at time.Time, v float64) {
	t.Helper()
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: metric}},
		Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: v}},
	}}}).Marshal()
	require.NoError(t, err)
	code, text := s.Post(t, "/api/v1/write", snappy.Encode(nil, body))
	require.Equal(t, http.StatusNoContent, code, text)
}

// Value returns the newest value of a metric, or "" if there is none. It waits until the server is ready.
func (s Server) Value(t *testing.T, metric string, at time.Time) string {
	t.Helper()
	require.Eventually(t, func() bool { code, _ := s.Get(t, "/-/ready"); return code == http.StatusOK },
		Patience, 5*time.Millisecond)
	code, body := s.Get(t, fmt.Sprintf("/api/v1/query?query=%s&time=%d.%03d", metric, at.Unix(), at.Nanosecond()/1e6))
	require.Equal(t, http.StatusOK, code, body)
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	if len(answer.Data.Result) == 0 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}

// LastLine returns the last line of a text.
func LastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// Metric returns the value in a line of /metrics. line is the name of the metric with its labels.
func Metric(t *testing.T, metrics, line string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + ` (\S+)$`).FindStringSubmatch(metrics)
	require.NotNil(t, found, line)
	v, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return v
}
