package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

// memory is a server that stores the received samples in memory. It decodes them with Prometheus' own messages.
type memory struct {
	t  *testing.T
	mu sync.Mutex
	// series contains the stored series by their labels.
	series   map[string]*prompb.TimeSeries
	tenants  map[string]bool
	types    map[string]writev2.Metadata_MetricType
	requests int
	// fail, if set, returns the status with which a request fails, and whether its samples are stored anyway.
	fail func(request int) (status int, keep bool)
}

func newMemory(t *testing.T) (*memory, *httptest.Server) {
	m := &memory{
		t: t, series: map[string]*prompb.TimeSeries{}, tenants: map[string]bool{},
		types: map[string]writev2.Metadata_MetricType{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/write", m.write)
	mux.HandleFunc("POST /api/v1/read", m.read)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return m, server
}

func (m *memory) write(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	status, keep := 0, true
	if m.fail != nil {
		status, keep = m.fail(m.requests)
	}
	if keep {
		body, err := io.ReadAll(r.Body)
		require.NoError(m.t, err)
		body, err = snappy.Decode(nil, body)
		require.NoError(m.t, err)
		m.tenants[r.Header.Get("X-Scope-OrgID")] = true
		if strings.Contains(r.Header.Get("Content-Type"), "write.v2") {
			require.Equal(m.t, "2.0.0", r.Header.Get("X-Prometheus-Remote-Write-Version"))
			m.keepV2(body)
		} else {
			require.Equal(m.t, "0.1.0", r.Header.Get("X-Prometheus-Remote-Write-Version"))
			m.keepV1(body)
		}
	}
	if status != 0 {
		http.Error(w, "as the test wants", status)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (m *memory) keepV1(body []byte) {
	var request prompb.WriteRequest
	require.NoError(m.t, request.Unmarshal(body))
	for _, series := range request.Timeseries {
		require.True(m.t, slices.IsSortedFunc(series.Labels, func(a, b prompb.Label) int {
			return strings.Compare(a.Name, b.Name)
		}))
		into := m.seriesOf(labelsFrom(series.Labels))
		into.Samples = append(into.Samples, series.Samples...)
		into.Histograms = append(into.Histograms, series.Histograms...)
	}
}

func (m *memory) keepV2(body []byte) {
	var request writev2.Request
	require.NoError(m.t, request.Unmarshal(body))
	require.Equal(m.t, "", request.Symbols[0])
	var b labels.ScratchBuilder
	for _, series := range request.Timeseries {
		ls, err := series.ToLabels(&b, request.Symbols)
		require.NoError(m.t, err)
		m.types[ls.Get(labels.MetricName)] = series.Metadata.Type
		into := m.seriesOf(ls)
		for _, s := range series.Samples {
			into.Samples = append(into.Samples, prompb.Sample{Timestamp: s.Timestamp, Value: s.Value})
		}
		for _, h := range series.Histograms {
			if h.IsFloatHistogram() {
				into.Histograms = append(into.Histograms, prompb.FromFloatHistogram(h.Timestamp, h.ToFloatHistogram()))
			} else {
				into.Histograms = append(into.Histograms, prompb.FromIntHistogram(h.Timestamp, h.ToIntHistogram()))
			}
		}
	}
}

func (m *memory) seriesOf(ls labels.Labels) *prompb.TimeSeries {
	into, ok := m.series[ls.String()]
	if !ok {
		into = &prompb.TimeSeries{Labels: prompb.FromLabels(ls, nil)}
		m.series[ls.String()] = into
	}
	return into
}

func (m *memory) read(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	require.NoError(m.t, err)
	body, err = snappy.Decode(nil, body)
	require.NoError(m.t, err)
	var request prompb.ReadRequest
	require.NoError(m.t, proto.Unmarshal(body, &request))
	q := request.Queries[0]
	out := &prompb.QueryResult{}
	for _, series := range m.series {
		if labelsFrom(series.Labels).Get("instance") != q.Matchers[0].Value {
			continue
		}
		answer := &prompb.TimeSeries{Labels: series.Labels}
		seen := map[int64]bool{}
		in := func(t int64) bool {
			ok := t >= q.StartTimestampMs && t <= q.EndTimestampMs && !seen[t]
			seen[t] = true
			return ok
		}
		for _, s := range series.Samples {
			if in(s.Timestamp) {
				answer.Samples = append(answer.Samples, s)
			}
		}
		for _, h := range series.Histograms {
			if in(h.Timestamp) {
				answer.Histograms = append(answer.Histograms, h)
			}
		}
		out.Timeseries = append(out.Timeseries, answer)
	}
	message, err := proto.Marshal(&prompb.ReadResponse{Results: []*prompb.QueryResult{out}})
	require.NoError(m.t, err)
	_, err = w.Write(snappy.Encode(nil, message))
	require.NoError(m.t, err)
}
