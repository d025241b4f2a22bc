package remotewrite

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the handler's Prometheus metrics.
type metrics struct {
	stored, rejected   prometheus.Counter
	ruled              prometheus.Counter
	exemplars, dropped prometheus.Counter
	reasons            *prometheus.CounterVec
	requests           *prometheus.CounterVec
	ack                prometheus.Histogram
	received, decoded  prometheus.Counter

	// codes caches the counters of requests by version and code.
	mu    sync.RWMutex
	codes map[responseLabels]prometheus.Counter
}

// responseLabels is the key of a counter of requests.
type responseLabels struct {
	version version
	code    int
}

func newMetrics(reg prometheus.Registerer, inFlight func() int64) *metrics {
	f := promauto.With(reg)
	samples := f.NewCounterVec(prometheus.CounterOpts{
		Name: "cassia_write_samples_total",
		Help: "Samples and histograms received by remote write, by result: stored (durable), rejected (the response " +
			"has the reason), dropped (by a rule of --write.relabel-file).",
	}, []string{"result"})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cassia_write_in_flight_bytes",
		Help: "Bytes of remote write requests in flight, compressed and decompressed.",
	}, func() float64 { return float64(inFlight()) })
	return &metrics{
		stored:   samples.WithLabelValues("stored"),
		rejected: samples.WithLabelValues("rejected"),
		ruled:    samples.WithLabelValues("dropped"),
		reasons: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_write_rejected_samples_total",
			Help: "Samples and histograms rejected by remote write, by reason.",
		}, []string{"reason"}),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_write_exemplars_dropped_total",
			Help: "Exemplars received by remote write that were not stored: invalid, too old, too far in the future, " +
				"or of a rejected series.",
		}),
		exemplars: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_write_exemplars_total",
			Help: "Exemplars received by remote write that were stored.",
		}),
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_write_requests_total",
			Help: "Remote write requests by protocol version and status code.",
		}, []string{"version", "code"}),
		ack: f.NewHistogram(prometheus.HistogramOpts{
			Name: "cassia_write_ack_seconds",
			Help: "Duration of remote write requests whose samples were stored, from the request headers to the " +
				"response.",
			Buckets: []float64{
				.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
			},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}),
		received: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_write_received_bytes_total",
			Help: "Compressed bytes of remote write request bodies.",
		}),
		decoded: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_write_decoded_bytes_total",
			Help: "Decompressed bytes of remote write request bodies.",
		}),
		codes: map[responseLabels]prometheus.Counter{},
	}
}

// request counts a request. The number of codes is bounded, because only the handler sets them.
func (m *metrics) request(v version, code int) {
	key := responseLabels{v, code}
	m.mu.RLock()
	c := m.codes[key]
	m.mu.RUnlock()
	if c == nil {
		c = m.requests.WithLabelValues(v.String(), strconv.Itoa(code))
		m.mu.Lock()
		m.codes[key] = c
		m.mu.Unlock()
	}
	c.Inc()
}

// samples counts the samples of a request by result.
func (m *metrics) samples(d *decoder) {
	m.stored.Add(float64(d.written.floats + d.written.histograms))
	m.ruled.Add(float64(d.droppedByRules.floats + d.droppedByRules.histograms))
	m.exemplars.Add(float64(d.written.exemplars))
	m.dropped.Add(float64(d.dropped + d.rejections.exemplars()))
	for _, r := range d.rejections {
		m.rejected.Add(float64(r.samples))
		m.reasons.WithLabelValues(r.reason).Add(float64(r.samples))
	}
}
