package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// apiRig consists of a real Prometheus and a Cassia server that have received the same samples.
type apiRig struct {
	prometheus, cassia string
	// from and to are the times of the first and the last sample. to is close to the current time.
	from, to time.Time
}

// apiSamples is the number of samples per series, and apiInterval the time between them.
const (
	apiSamples  = 200
	apiInterval = 15 * time.Second
)

// newAPIRig starts both servers. Neither of them scrapes.
func newAPIRig(t *testing.T) apiRig {
	t.Helper()
	dir := t.TempDir()
	path := cassiatest.Binary(t, "CASSIA_TEST_PROMETHEUS", "prometheus")
	address, err := promrig.FreeAddress()
	require.NoError(t, err)
	rules, err := filepath.Abs("testdata/rules/api.yml")
	require.NoError(t, err)
	program, err := promrig.Prometheus(
		path, dir, address, fmt.Sprintf("storage: {tsdb: {out_of_order_time_window: 1d}}\nrule_files: [%q]\n", rules),
		"--web.enable-remote-write-receiver", "--web.cors.origin=.*", "--enable-feature=exemplar-storage",
	)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), cassiatest.ReadyWithin)
	defer cancel()
	process, err := promrig.StartReady(ctx, program)
	require.NoError(t, err)
	t.Cleanup(process.Kill)

	cassia := startServe(t, "--storage.path="+dir+"/cassia", "--rule.files="+rules)
	to := time.Now().Truncate(time.Minute)
	r := apiRig{prometheus: process.URL(), cassia: cassia.URL, from: to.Add(-(apiSamples - 1) * apiInterval), to: to}
	require.Eventually(t, func() bool { code, _ := cassia.Get(t, "/-/ready"); return code == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	body := apiData(t, r.from)
	for _, url := range []string{r.prometheus, r.cassia} {
		r.send(t, url, body)
	}
	require.Eventually(t, func() bool { // Metadata may be stored a little later.
		_, text := cassia.Get(t, "/api/v1/metadata")
		return strings.Contains(text, "Requests.")
	}, cassiatest.Patience, 5*time.Millisecond, "metadata")
	return r
}

func (r apiRig) send(t *testing.T, url string, body []byte) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, url+"/api/v1/write", bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, answer.StatusCode, "%s: %s", url, text)
}

// apiData returns a write request with counters, gauges with all kinds of floats, names and values outside of ASCII,
// both kinds of native histograms, native histograms with custom bounds, and exemplars. The series are sorted by their
// labels, because Prometheus returns series from its head in the order of arrival, but from its blocks in the order of
// their labels.
func apiData(t *testing.T, from time.Time) []byte {
	t.Helper()
	symbols := writev2.NewSymbolTable()
	var request writev2.Request
	var all []labels.Labels // of all series
	add := func(ls labels.Labels, meta writev2.Metadata, fill func(s *writev2.TimeSeries, i int, ts int64)) {
		s := writev2.TimeSeries{LabelsRefs: symbols.SymbolizeLabels(ls, nil), Metadata: meta}
		for i := range apiSamples {
			fill(&s, i, from.Add(time.Duration(i)*apiInterval).UnixMilli())
		}
		request.Timeseries = append(request.Timeseries, s)
		all = append(all, ls)
	}
	float := func(v func(i int) float64) func(*writev2.TimeSeries, int, int64) {
		return func(s *writev2.TimeSeries, i int, ts int64) {
			s.Samples = append(s.Samples, writev2.Sample{Timestamp: ts, Value: v(i)})
		}
	}
	counter := writev2.Metadata{
		Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: symbols.Symbolize("Requests."),
		UnitRef: symbols.Symbolize(""),
	}
	for i, instance := range []string{"a:1", "b:1", "c:1", "d:1"} {
		add(labels.FromStrings(
			"__name__", "requests_total", "instance", instance, "job", []string{"api", "web"}[i%2], "path", "/",
		), counter,
			func(s *writev2.TimeSeries, k int, ts int64) {
				s.Samples = append(s.Samples, writev2.Sample{Timestamp: ts, Value: float64((k*(i+3))%700) + 0.5})
				if i == 0 && k%50 == 0 {
					s.Exemplars = append(s.Exemplars, writev2.Exemplar{
						LabelsRefs: symbols.SymbolizeLabels(labels.FromStrings("trace_id", fmt.Sprint("t", k)), nil),
						Value:      float64(k), Timestamp: ts,
					})
				}
			})
	}
	special := []float64{
		0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 1e300,
		math.Float64frombits(value.StaleNaN), 12345.678,
	}
	add(labels.FromStrings("__name__", "special"), writev2.Metadata{}, float(func(i int) float64 {
		return special[i%len(special)]
	}))
	add(labels.FromStrings("__name__", "gone", "job", "web"), writev2.Metadata{}, float(func(i int) float64 {
		if i == apiSamples-1 {
			return math.Float64frombits(value.StaleNaN)
		}
		return float64(i)
	}))
	add(labels.FromStrings("__name__", "up", "instance", "a:1", "job", "api"),
		writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE}, float(func(int) float64 { return 1 }))
	add(labels.FromStrings("__name__", "http.requests", "k8s.pod", "p-1", "weg", "größer/als \"1\"\\\n"),
		writev2.Metadata{}, float(func(i int) float64 { return float64(i) }))
	add(labels.FromStrings("__name__", "温度", "ort", "köln"), writev2.Metadata{}, float(func(i int) float64 {
		return float64(i) / 10
	}))
	for le, share := range map[string]float64{"0.1": 1, "1": 3, "+Inf": 4} {
		add(labels.FromStrings("__name__", "latency_bucket", "le", le), writev2.Metadata{}, float(func(i int) float64 {
			return share * float64(i)
		}))
	}
	add(labels.FromStrings("__name__", "native", "job", "api"),
		writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_HISTOGRAM}, func(s *writev2.TimeSeries, i int, ts int64) {
			n := uint64(i + 1)
			s.Histograms = append(s.Histograms, writev2.FromIntHistogram(0, ts, &histogram.Histogram{
				Schema: 1, ZeroThreshold: 0.001, ZeroCount: n, Count: 6 * n, Sum: float64(i) * 1.5,
				PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{int64(n), int64(n)},
				NegativeSpans: []histogram.Span{{Offset: 1, Length: 1}}, NegativeBuckets: []int64{int64(2 * n)},
			}))
		})
	add(labels.FromStrings("__name__", "native_gauge"), writev2.Metadata{}, func(
		s *writev2.TimeSeries, i int, ts int64,
	) {
		s.Histograms = append(s.Histograms, writev2.FromFloatHistogram(0, ts, &histogram.FloatHistogram{
			CounterResetHint: histogram.GaugeType, Schema: 0, Count: 2.5, Sum: float64(i % 7),
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}}, PositiveBuckets: []float64{2.5},
		}))
	})
	add(labels.FromStrings("__name__", "custom"), writev2.Metadata{}, func(s *writev2.TimeSeries, i int, ts int64) {
		n := float64(i)
		s.Histograms = append(s.Histograms, writev2.FromFloatHistogram(0, ts, &histogram.FloatHistogram{
			Schema: histogram.CustomBucketsSchema, Count: 3 * n, Sum: n, CustomValues: []float64{0.5, 2},
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []float64{n, 2 * n},
		}))
	})
	for _, ls := range orderedSeries() {
		add(ls, writev2.Metadata{}, float(func(i int) float64 { return float64(ls.Hash()%1000) + float64(i) }))
	}
	places := make([]int, len(all))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return labels.Compare(all[a], all[b]) })
	sorted := make([]writev2.TimeSeries, len(all))
	for i, at := range places {
		sorted[i] = request.Timeseries[at]
	}
	request.Timeseries, request.Symbols = sorted, symbols.Symbols()
	body, err := request.Marshal()
	require.NoError(t, err)
	return snappy.Encode(nil, body)
}

// orderedSeries returns series of two metrics whose order depends on the sorting labels. They have labels that other
// series don't have, and a label that sorts before the metric name.
func orderedSeries() (all []labels.Labels) {
	for i := range 24 {
		b := labels.NewBuilder(labels.FromStrings(
			"__name__", []string{"order_a", "order_b"}[i%2], "host", fmt.Sprint("h", i*7%12),
			"zone", []string{"west", "east", "north"}[i/2*5%3],
		))
		if i%5 == 0 {
			b.Set("Rack", fmt.Sprint(9-i%7))
		}
		if i%3 == 0 {
			b.Set("disk", fmt.Sprint("d", (24-i)%4))
		}
		all = append(all, b.Labels())
	}
	return all
}

// apiCall is one call of the table, which is sent to both servers.
type apiCall struct {
	// line is the table's line that describes the call.
	line         string
	method, path string
	header       http.Header
	form         string
	// shape is set if only the shapes of the responses are compared, because the values differ.
	shape bool
}

// parseAPICall parses a line of the table: [~]METHOD path [<- form] [; Header: value]…, see testdata/api-calls.txt.
func (r apiRig) parseAPICall(line string) (apiCall, error) {
	c := apiCall{line: line, header: http.Header{}}
	parts := strings.Split(line, " ; ")
	for _, h := range parts[1:] {
		name, value, ok := strings.Cut(h, ": ")
		if !ok {
			return c, fmt.Errorf("header %q", h)
		}
		c.header.Add(name, value)
	}
	text, form, posted := strings.Cut(parts[0], " <- ")
	if posted {
		c.form = r.fill(form)
		if c.header.Get("Content-Type") == "" {
			c.header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	text, c.shape = strings.CutPrefix(text, "~")
	method, path, ok := strings.Cut(text, " ")
	if !ok {
		return c, fmt.Errorf("no path")
	}
	c.method, c.path = method, r.fill(path)
	return c, nil
}

// fill replaces placeholders for times and escapes text for a URL. {next} is on a later day without samples: sealed
// series are listed by day, so at a later hour of the same day they would be listed after sealing.
func (r apiRig) fill(text string) string {
	text = strings.NewReplacer(
		"{from}", fmt.Sprint(r.from.Unix()), "{to}", fmt.Sprint(r.to.Unix()),
		"{mid}", fmt.Sprint(r.from.Add(r.to.Sub(r.from)/2).Unix()), "{fromRFC}", r.from.UTC().Format(time.RFC3339),
		"{toRFC}", r.to.UTC().Format(time.RFC3339Nano), "{late}", fmt.Sprint(r.to.Add(-10*time.Minute).Unix()),
		"{next}", fmt.Sprint(r.to.Add(25*time.Hour).Unix()),
	).Replace(text)
	var out strings.Builder
	for _, b := range []byte(text) {
		if b <= ' ' || b >= 0x7f || strings.IndexByte("\"<>\\^`{|}", b) >= 0 {
			fmt.Fprintf(&out, "%%%02X", b)
			continue
		}
		out.WriteByte(b)
	}
	return out.String()
}

// apiAnswer is the response to a call.
type apiAnswer struct {
	code   int
	header http.Header
	body   []byte
}

// apiClient neither follows redirects nor decompresses responses.
var apiClient = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (c apiCall) ask(ctx context.Context, url string) (apiAnswer, error) {
	request, err := http.NewRequestWithContext(ctx, c.method, url+c.path, strings.NewReader(c.form))
	if err != nil {
		return apiAnswer{}, err
	}
	request.Header = c.header.Clone()
	answer, err := apiClient.Do(request)
	if err != nil {
		return apiAnswer{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return apiAnswer{answer.StatusCode, answer.Header, body}, err
}
