package cassandra

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/engine"
)

// operation is a kind of request in metrics.
type operation string

const (
	opWrite operation = "write" // one batch
	opScan  operation = "scan"  // one page
	opSet   operation = "compare_and_set"
	opOther operation = "other"
)

// metrics counts requests.
type metrics struct {
	requests *prometheus.CounterVec
	tables   *prometheus.CounterVec
	retries  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	nodes    *prometheus.Desc
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_cassandra_requests_total",
			Help: "Completed Cassandra requests by result: ok, cancelled, timeout or error.",
		}, []string{"op", "result"}),
		tables: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_cassandra_table_requests_total",
			Help: "Cassandra requests by table: batches written, pages read, and lightweight transactions.",
		}, []string{"op", "table"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_cassandra_retries_total",
			Help: "Retries of failed Cassandra requests, on the same or another node.",
		}, []string{"op"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cassia_cassandra_request_seconds",
			Help:    "Duration of Cassandra requests, including queueing and retries.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}, []string{"op"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cassia_cassandra_in_flight",
			Help: "Cassandra requests in flight.",
		}),
		nodes: prometheus.NewDesc("cassia_cassandra_nodes",
			"Cassandra nodes of the local data center, by state: up or down.", []string{"state"}, nil),
	}
}

func (m *metrics) observeRequest(op operation, took time.Duration, err error) {
	result := "ok"
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled), errors.Is(err, engine.ErrClosed):
		result = "cancelled"
	case errors.Is(err, errNoAnswer), errors.Is(err, context.DeadlineExceeded):
		result = "timeout"
	default:
		result = "error"
	}
	m.requests.WithLabelValues(string(op), result).Inc()
	m.seconds.WithLabelValues(string(op)).Observe(took.Seconds())
}

// countRequest counts a request on a table.
func (m *metrics) countRequest(op operation, t *engine.Table) {
	m.tables.WithLabelValues(string(op), t.Name).Inc()
}

func (m *metrics) countRetries(op operation, times int) {
	if times > 0 {
		m.retries.WithLabelValues(string(op)).Add(float64(times))
	}
}

func (e *Engine) Describe(ch chan<- *prometheus.Desc) {
	e.metrics.requests.Describe(ch)
	e.metrics.tables.Describe(ch)
	e.metrics.retries.Describe(ch)
	e.metrics.seconds.Describe(ch)
	e.metrics.inFlight.Describe(ch)
	ch <- e.metrics.nodes
}

func (e *Engine) Collect(ch chan<- prometheus.Metric) {
	e.metrics.requests.Collect(ch)
	e.metrics.tables.Collect(ch)
	e.metrics.retries.Collect(ch)
	e.metrics.seconds.Collect(ch)
	e.metrics.inFlight.Collect(ch)
	up, down := e.nodes.count()
	ch <- prometheus.MustNewConstMetric(e.metrics.nodes, prometheus.GaugeValue, float64(up), "up")
	ch <- prometheus.MustNewConstMetric(e.metrics.nodes, prometheus.GaugeValue, float64(down), "down")
}
