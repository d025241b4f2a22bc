package otlp

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what an operator sees of the handler.
type metrics struct {
	requests         *prometheus.CounterVec
	points, warnings *prometheus.CounterVec
	received         prometheus.Counter
	samples          prometheus.Counter
	exemplars        prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, inFlight func() int64) *metrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cassia_otlp_in_flight_bytes",
		Help: "Bytes of OTLP requests under way: bodies, and what they are estimated to become in memory.",
	}, func() float64 { return float64(inFlight()) })
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_otlp_requests_total",
			Help: "OTLP requests by encoding and status code.",
		}, []string{"encoding", "code"}),
		points: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_otlp_data_points_total",
			Help: "Data points by result: stored (durable, but for series that rules of --write.relabel-file drop), or the reason why they were refused.",
		}, []string{"result"}),
		samples: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_otlp_samples_total",
			Help: "Samples that data points became, durable.",
		}),
		exemplars: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_otlp_exemplars_total",
			Help: "Exemplars of data points, durable.",
		}),
		warnings: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_otlp_translation_warnings_total",
			Help: "Warnings of Prometheus' translation, by category.",
		}, []string{"category"}),
		received: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_otlp_received_bytes_total",
			Help: "Bytes of OTLP bodies, compressed where they came so.",
		}),
	}
}

func (m *metrics) request(e encoding, code int) {
	m.requests.WithLabelValues(e.String(), strconv.Itoa(code)).Inc()
}
