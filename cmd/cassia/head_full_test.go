package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// burst sends samples of a single series of a tenant. The samples have different times and are almost incompressible.
type burst struct {
	r      running
	tenant string
	at     time.Time
	n      int
}

func (b *burst) send(t *testing.T, samples int) (code int, retryAfter, text string) {
	t.Helper()
	series := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "burst"}}}
	for range samples {
		series.Samples = append(series.Samples, prompb.Sample{
			Timestamp: b.at.UnixMilli() - int64(b.n), Value: float64(b.n*7919%1_000_003) / 3,
		})
		b.n++
	}
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series}}).Marshal()
	require.NoError(t, err)
	request, err := http.NewRequest(http.MethodPost, b.r.URL+"/api/v1/write", bytes.NewReader(snappy.Encode(nil, body)))
	require.NoError(t, err)
	for k, v := range map[string]string{
		"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
		"X-Prometheus-Remote-Write-Version": "0.1.0", "X-Scope-OrgID": b.tenant,
	} {
		request.Header.Set(k, v)
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	told, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header.Get("Retry-After"), string(told)
}

// TestOneSeriesFillsTheHead fills the memory for unsealed samples with one series. Its samples are rejected with 503
// while its tenant is the only one, and with 429 once other tenants use some of the memory. Samples of the other
// tenants are accepted, including new series. Sealing frees the memory.
func TestOneSeriesFillsTheHead(t *testing.T) {
	t.Parallel()
	const most = 16 << 20
	r := startServe(t, "--storage.path="+t.TempDir(), fmt.Sprint("--storage.head-bytes=", most))
	at := time.Now().Truncate(time.Second)
	held := func() float64 {
		_, metrics := r.Get(t, "/metrics")
		return cassiatest.Metric(t, metrics, "cassia_store_head_bytes")
	}
	alone := &burst{r: r, tenant: "burst", at: at}
	fill := func() (code int, retryAfter, text string) {
		for {
			if code, retryAfter, text = alone.send(t, 20_000); code != http.StatusNoContent {
				return code, retryAfter, text
			}
			require.Less(t, held(), 1.25*most+2<<20)
			require.Less(t, alone.n, most, "a sample takes more than a byte, and it is never refused")
		}
	}
	code, retryAfter, text := fill()
	require.Equal(t, http.StatusServiceUnavailable, code, text)
	require.NotEmpty(t, retryAfter)
	require.Contains(t, text, "--storage.head-bytes")

	t.Logf("%d samples fill it", alone.n)
	other := &burst{r: r, tenant: "other", at: at}
	for held() > most { // Other tenants may use this memory.
		code, _, text := other.send(t, 20_000)
		require.Equal(t, http.StatusNoContent, code, "new where the head is full: %s", text)
		if code, retryAfter, text = alone.send(t, 1); code == http.StatusTooManyRequests {
			require.NotEmpty(t, retryAfter)
			require.Contains(t, text, "fair share")
			break
		}
	}
	newcomer := &burst{r: r, tenant: "newcomer", at: at}
	code, _, text = newcomer.send(t, 10)
	require.Equal(t, http.StatusNoContent, code, text)
	require.Less(t, held(), 1.75*most)

	code, text = r.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	code, _, text = alone.send(t, 20_000)
	require.Equal(t, http.StatusNoContent, code, text)
}
