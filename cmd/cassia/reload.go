package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// reloadable is a file that may be read again while the process runs.
type reloadable struct {
	// flag names it.
	flag string
	// load reads and checks it, and returns what puts it into force.
	load func() (apply func(), err error)
}

// reloader reads files again, all or none.
type reloader struct {
	log   *slog.Logger
	parts []reloadable

	mu         sync.Mutex // one at a time
	successful prometheus.Gauge
	seconds    prometheus.Gauge
}

// newReloader returns a reloader of files that have just been read.
func newReloader(log *slog.Logger, reg prometheus.Registerer, parts ...reloadable) *reloader {
	f := promauto.With(reg)
	r := &reloader{
		log: log, parts: parts,
		successful: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_config_last_reload_successful",
			Help: "Whether the files that can be reloaded could be used when they were last read: 1 or 0."}),
		seconds: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_config_last_reload_success_timestamp_seconds",
			Help: "When the files that can be reloaded were last read and used."}),
	}
	r.succeeded()
	return r
}

func (r *reloader) succeeded() {
	r.successful.Set(1)
	r.seconds.Set(float64(time.Now().UnixMilli()) / 1000)
}

// reload reads all files again. Where one can't be used, all stays as it was.
func (r *reloader) reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var apply []func()
	for _, p := range r.parts {
		f, err := p.load()
		if err != nil {
			r.successful.Set(0)
			r.log.Error("a file could not be reloaded, all stays as it was", "flag", p.flag, "err", err)
			return err
		}
		apply = append(apply, f)
	}
	for _, f := range apply {
		f()
	}
	r.succeeded()
	r.log.Info("files reloaded")
	return nil
}

// onHangup reloads at every SIGHUP until ctx ends.
func (r *reloader) onHangup(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				_ = r.reload() // It says itself what is wrong.
			}
		}
	}()
}
