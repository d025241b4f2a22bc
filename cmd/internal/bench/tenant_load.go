package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// TenantLoad is a load by multiple tenants on one server. Each tenant sends its series and a query at every interval,
// independently of the others. Two more tenants misbehave: Greedy sends samples and queries as fast as it can, above
// its limits, and Garbage sends invalid data.
//
//	tenant-0 … tenant-99 ──► write, query ──┐  measured
//	greedy   ══════════════► write, query ──┤  responses counted
//	garbage  ══════════════► anything ──────┘
type TenantLoad struct {
	// URL is the server's URL without a path.
	URL     string
	Tenants int
	// Series is the number of series per tenant. Each request contains one sample of each.
	Series   int
	Interval time.Duration
	// For is the duration of the load. Its first tenth isn't measured, because the series are new then.
	For time.Duration
	// Bad is the number of concurrent requests of Greedy and of Garbage. If it is 0, they send none.
	Bad int
}

// Greedy and Garbage are the tenants that misbehave.
const (
	Greedy  = "greedy"
	Garbage = "garbage"
)

// Latency summarizes the durations of requests.
type Latency struct {
	Requests, Failed int64
	P50, P99, Max    time.Duration
	// Example is the response to one of the failed requests.
	Example string
}

// TenantLoadReport is the result of a load: the latencies of the regular tenants, and the number of responses to Greedy
// and Garbage by status.
type TenantLoadReport struct {
	Ack, Query Latency
	Bad        map[string]map[int]int64
}

// runningLoad is a load in progress.
type runningLoad struct {
	TenantLoad
	client *http.Client
	from   time.Time // requests started before this time aren't measured

	mu         sync.Mutex
	ack, query timings
	bad        map[string]map[int]int64
}

// timings holds the measurements of requests of one kind.
type timings struct {
	latencyHistogram
	failed  int64
	example string
}

// Run runs the load and returns its report. If ctx ends, it stops early.
func (t TenantLoad) Run(ctx context.Context) TenantLoadReport {
	r := &runningLoad{
		TenantLoad: t, from: time.Now().Add(t.For / 10), bad: map[string]map[int]int64{Greedy: {}, Garbage: {}},
		client: &http.Client{Timeout: time.Minute,
			Transport: &http.Transport{MaxIdleConnsPerHost: 2*t.Tenants + 4*t.Bad}},
	}
	defer r.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, t.For)
	defer cancel()
	var all sync.WaitGroup
	for i := range t.Tenants {
		name, wait := fmt.Sprintf("tenant-%d", i), t.Interval*time.Duration(i)/time.Duration(t.Tenants)
		all.Go(func() { r.repeatEvery(ctx, wait, func() { r.write(ctx, name) }) })
		all.Go(func() { r.repeatEvery(ctx, wait+t.Interval/2, func() { r.queryOnce(ctx, name) }) })
	}
	for i := range t.Bad {
		all.Go(func() { r.greedyWrites(ctx, i) })
		all.Go(func() { r.greedyQueries(ctx) })
		all.Go(func() { r.sendGarbage(ctx, uint64(i)) })
	}
	all.Wait()
	return TenantLoadReport{Ack: r.ack.report(), Query: r.query.report(), Bad: r.bad}
}

func (m *timings) report() Latency {
	return Latency{Requests: m.total, Failed: m.failed, P50: m.quantile(.5), P99: m.quantile(.99),
		Max: m.max, Example: m.example}
}

// repeatEvery calls f at each interval, one call at a time. It skips calls that become due during another call.
func (r *runningLoad) repeatEvery(ctx context.Context, after time.Duration, f func()) {
	if wait(ctx, after) != nil {
		return
	}
	ticker := time.NewTicker(r.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// write sends one sample for each series of a tenant.
func (r *runningLoad) write(ctx context.Context, name string) {
	r.time(ctx, &r.ack, name, http.MethodPost, "/api/v1/write", r.samples(r.Series, ""), http.StatusNoContent)
}

func (r *runningLoad) queryOnce(ctx context.Context, name string) {
	r.time(ctx, &r.query, name, http.MethodGet,
		r.rangeQuery("sum by (job) (rate(crowd_total[1m]))"), nil, http.StatusOK)
}

func (r *runningLoad) rangeQuery(expr string) string {
	now := time.Now().Unix()
	return fmt.Sprintf("/api/v1/query_range?query=%s&start=%d&end=%d&step=15", url.QueryEscape(expr), now-3600, now)
}

// samples returns a remote write 1.0 request with the given number of series, whose names end with ending.
func (r *runningLoad) samples(series int, ending string) []byte {
	var w prompb.WriteRequest
	now := time.Now().UnixMilli()
	for i := range series {
		w.Timeseries = append(w.Timeseries, prompb.TimeSeries{
			Labels: []prompb.Label{
				{Name: "__name__", Value: "crowd_total" + ending}, {Name: "instance", Value: strconv.Itoa(i)},
				{Name: "job", Value: strconv.Itoa(i % 10)},
			},
			Samples: []prompb.Sample{{Timestamp: now, Value: float64(now)}},
		})
	}
	body, err := w.Marshal()
	if err != nil {
		panic(err) // All values are numbers.
	}
	return snappy.Encode(nil, body)
}

// time sends a request and records the duration until the whole response is received.
func (r *runningLoad) time(ctx context.Context, into *timings, name, method, path string, body []byte, want int) {
	began := time.Now()
	code, text := r.sendRequest(ctx, name, method, path, body)
	took := time.Since(began)
	if ctx.Err() != nil || began.Before(r.from) && code == want {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	into.add(took)
	if code != want {
		into.failed++
		into.example = fmt.Sprintf("%d: %.300s", code, text)
	}
}

// sendRequest sends a request and returns the status and the text of the response. The status is 0 if there is no
// response.
func (r *runningLoad) sendRequest(ctx context.Context, name, method, path string, body []byte) (int, string) {
	request, err := http.NewRequestWithContext(ctx, method, r.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("X-Scope-OrgID", name)
	answer, err := r.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// countResponse counts the response to a misbehaving tenant.
func (r *runningLoad) countResponse(ctx context.Context, name string, code int) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad[name][code]++
}

// greedyWrites sends large requests one after another. Their series keep changing.
func (r *runningLoad) greedyWrites(ctx context.Context, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		body := r.samples(2000, fmt.Sprintf("_%d_%d", worker, n/10))
		for range 10 {
			code, _ := r.sendRequest(ctx, Greedy, http.MethodPost, "/api/v1/write", body)
			r.countResponse(ctx, Greedy, code)
		}
	}
}

// greedyQueries sends queries that read all series, one after another.
func (r *runningLoad) greedyQueries(ctx context.Context) {
	for ctx.Err() == nil {
		code, _ := r.sendRequest(ctx, Greedy, http.MethodGet,
			r.rangeQuery(`quantile(0.9, rate({__name__=~"crowd_total.*"}[5m]))`), nil)
		r.countResponse(ctx, Greedy, code)
	}
}

// sendGarbage sends random bytes, truncated requests, and invalid queries.
func (r *runningLoad) sendGarbage(ctx context.Context, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	good := r.samples(1000, "")
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for n := 0; ctx.Err() == nil; n++ {
		var code int
		switch n % 4 {
		case 0:
			code, _ = r.sendRequest(ctx, Garbage, http.MethodPost, "/api/v1/write", noise[random.IntN(len(noise)):])
		case 1:
			code, _ = r.sendRequest(ctx, Garbage, http.MethodPost, "/api/v1/write", good[:random.IntN(len(good))])
		case 2:
			code, _ = r.sendRequest(ctx, Garbage, http.MethodPost, "/api/v1/write",
				snappy.Encode(nil, noise[:random.IntN(len(noise))]))
		default:
			code, _ = r.sendRequest(ctx, Garbage, http.MethodGet,
				"/api/v1/query?query="+url.QueryEscape(string(noise[:200])), nil)
		}
		r.countResponse(ctx, Garbage, code)
	}
}
