package backups

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	resultSuccess = "success"
	resultFailure = "failure"
)

type metrics struct {
	success, seconds, bytes prometheus.Gauge
	copied                  prometheus.Counter
	runs                    *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer, every time.Duration) *metrics {
	f := promauto.With(registerer)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		success: gauge("cassia_backup_last_success_timestamp_seconds", "When the newest whole backup was begun, this process' or an earlier one's; 0: there is none."),
		seconds: gauge("cassia_backup_last_duration_seconds", "How long the last backup of this process took that succeeded."),
		bytes:   gauge("cassia_backup_last_bytes", "How large the newest whole backup is, this process' or an earlier one's, what it shares with others included."),
		copied:  f.NewCounter(prometheus.CounterOpts{Name: "cassia_backup_copied_bytes_total", Help: "Bytes that backups copied or uploaded, because they weren't there."}),
		runs:    f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_backups_total", Help: "Backups of the schedule, by how they ended; one of a damaged store is a failure."}, []string{"result"}),
	}
	gauge("cassia_backup_interval_seconds", "After how long a backup follows another, as --backup.every says.").Set(every.Seconds())
	for _, result := range []string{resultSuccess, resultFailure} {
		m.runs.WithLabelValues(result)
	}
	return m
}
