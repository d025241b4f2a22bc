package otlp

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the handler's Prometheus metrics.
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
		Help: "Bytes of OTLP requests in flight: their bodies, and the estimated memory of the decoded requests.",
	}, func() float64 { return float64(inFlight()) })
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_otlp_requests_total",
			Help: "OTLP requests by encoding and status code.",
		}, []string{"encoding", "code"}),
		points: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_otlp_data_points_total",
			Help: "OTLP data points by result: stored (durable, or dropped by a rule of --write.relabel-file), or " +
				"the reason for their rejection.",
		}, []string{"result"}),
		samples: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_otlp_samples_total",
			Help: "Samples stored durably from OTLP data points.",
		}),
		exemplars: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_otlp_exemplars_total",
			Help: "Exemplars stored durably from OTLP data points.",
		}),
		warnings: f.NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_otlp_translation_warnings_total",
			Help: "Warnings of the translation from OTLP to Prometheus, by category.",
		}, []string{"category"}),
		received: f.NewCounter(prometheus.CounterOpts{
			Name: "cassia_otlp_received_bytes_total",
			Help: "Bytes of received OTLP bodies, before decompression.",
		}),
	}
}

func (m *metrics) request(e encoding, code int) {
	m.requests.WithLabelValues(e.String(), strconv.Itoa(code)).Inc()
}
