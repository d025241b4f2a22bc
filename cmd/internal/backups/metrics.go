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
		success: gauge("cassia_backup_last_success_timestamp_seconds",
			"Start time of the newest complete backup, by this process or an earlier one, in Unix seconds; 0 if "+
				"there is none."),
		seconds: gauge("cassia_backup_last_duration_seconds",
			"Duration of the last successful backup of this process, in seconds."),
		bytes: gauge("cassia_backup_last_bytes",
			"Size in bytes of the newest complete backup, by this process or an earlier one, including files shared "+
				"with other backups."),
		copied: f.NewCounter(prometheus.CounterOpts{Name: "cassia_backup_copied_bytes_total",
			Help: "Bytes copied or uploaded by backups; files that an earlier backup already copied don't count."}),
		runs: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_backups_total",
			Help: "Scheduled backups by result. The backup of a damaged store counts as failed."}, []string{"result"}),
	}
	gauge("cassia_backup_interval_seconds",
		"Interval between backups in seconds (--backup.every).").Set(every.Seconds())
	for _, result := range []string{resultSuccess, resultFailure} {
		m.runs.WithLabelValues(result)
	}
	return m
}
