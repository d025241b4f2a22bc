package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/storage/panics"
)

// Reloaders are the files that are read again while the process runs. Each is added before the first reload.
type Reloaders struct {
	log     *slog.Logger
	now     func() time.Time
	ok      prometheus.Gauge
	success prometheus.Gauge

	mu   sync.Mutex
	list []reloader

	lastMu sync.Mutex
	failed bool
	last   time.Time // the last successful reload
}

type reloader struct {
	what   string
	reload func() error
}

// NewReloaders returns an empty list, whose metrics go to r.
func NewReloaders(r prometheus.Registerer, log *slog.Logger, now func() time.Time) *Reloaders {
	f := promauto.With(r)
	list := &Reloaders{log: log, now: now,
		ok: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_config_last_reload_successful",
			Help: "Whether the last reload of all configuration files was successful (1) or not (0)."}),
		success: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_config_last_reload_success_timestamp_seconds",
			Help: "Time of the last successful reload of all configuration files, in Unix seconds."}),
	}
	list.note(nil) // They were read at the start.
	return list
}

// Add puts a file on the list. reload reads it again; after an error what it held before must be left as it was.
func (l *Reloaders) Add(what string, reload func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, reloader{what, reload})
}

// Reload reads all of them, also after one that is wrong. The error joins theirs.
func (l *Reloaders) Reload() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, r := range l.list {
		err := r.reload()
		if err != nil {
			l.log.Error("can't reload a configuration file; the previous content stays in effect", "file", r.what, "err", err)
		} else {
			l.log.Info("reloaded a configuration file", "file", r.what)
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	l.note(err)
	return err
}

func (l *Reloaders) note(err error) {
	l.lastMu.Lock()
	defer l.lastMu.Unlock()
	if l.failed = err != nil; l.failed {
		l.ok.Set(0)
		return
	}
	l.last = l.now()
	l.ok.Set(1)
	l.success.Set(float64(l.last.UnixMilli()) / 1000)
}

// Last returns whether the last reload of all files was successful, and the time of the last successful one. The start counts as one.
func (l *Reloaders) Last() (ok bool, last time.Time) {
	l.lastMu.Lock()
	defer l.lastMu.Unlock()
	return !l.failed, l.last
}

// OnHangup reloads whenever the process gets the signal SIGHUP, until ctx ends. It listens when it returns.
func (l *Reloaders) OnHangup(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				_ = panics.Do("reading files again", l.Reload) // It is logged.
			case <-ctx.Done():
				return
			}
		}
	}()
}

// reload answers POST and PUT /-/reload when all files were read again.
func (h *handler) reload(w http.ResponseWriter, r *http.Request) {
	switch {
	case h.Reload == nil:
		text(w, http.StatusForbidden, "reloading over HTTP is disabled; start Cassia with --web.enable-lifecycle, or send SIGHUP")
	case r.Method != http.MethodPost && r.Method != http.MethodPut:
		w.Header().Set("Allow", "POST, PUT")
		text(w, http.StatusMethodNotAllowed, "use POST")
	default:
		if err := h.Reload(); err != nil {
			text(w, http.StatusInternalServerError, "reloading failed: "+err.Error())
			return
		}
		text(w, http.StatusOK, "reloaded")
	}
}
