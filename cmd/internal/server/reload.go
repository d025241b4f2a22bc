package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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

// Reloaders is the list of the files that can be reloaded while the process runs. All of them must be added before the
// first reload.
type Reloaders struct {
	log     *slog.Logger
	now     func() time.Time
	ok      prometheus.Gauge
	success prometheus.Gauge

	mu   sync.Mutex
	list []reloader

	lastMu sync.Mutex
	failed map[string]bool // files whose latest contents are invalid
	last   time.Time       // time of the last successful reload
	logged map[string]time.Time
}

type reloader struct {
	what   string
	reload func() error
}

// NewReloaders returns an empty list. Its metrics are registered with r.
func NewReloaders(r prometheus.Registerer, log *slog.Logger, now func() time.Time) *Reloaders {
	f := promauto.With(r)
	list := &Reloaders{log: log, now: now, failed: map[string]bool{}, logged: map[string]time.Time{},
		ok: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_config_last_reload_successful",
			Help: "Whether the last reload of all configuration files was successful (1) or not (0)."}),
		success: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_config_last_reload_success_timestamp_seconds",
			Help: "Time of the last successful reload of all configuration files, in Unix seconds."}),
	}
	list.update(nil) // All files were read at the start.
	return list
}

// Add adds a file. reload reads the file again. If it returns an error, the previous contents must stay in effect.
func (l *Reloaders) Add(what string, reload func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, reloader{what, reload})
}

// Reload reloads all files, even if some are invalid. It returns all errors, joined.
func (l *Reloaders) Reload() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := map[string]error{}
	var errs []error
	for _, r := range l.list {
		results[r.what] = r.reload()
		l.write(r.what, results[r.what])
		errs = append(errs, results[r.what])
	}
	l.update(results)
	l.log.Info("reloading has no effect on flags and --retention.file; restart the process to apply their changes")
	return errors.Join(errs...)
}

// RecordResult records the result of reloading a file that was detected as changed. It logs the same error at most once
// per minute.
func (l *Reloaders) RecordResult(what string, err error) {
	if l.update(map[string]error{what: err}); err == nil || l.isNew(err) {
		l.write(what, err)
	}
}

func (l *Reloaders) write(what string, err error) {
	if err != nil {
		l.log.Error("can't reload a configuration file; the previous content stays in effect", "file", what, "err", err)
		return
	}
	l.log.Info("reloaded a configuration file", "file", what)
}

// isNew reports whether the error hasn't been logged within the last minute.
func (l *Reloaders) isNew(err error) bool {
	l.lastMu.Lock()
	defer l.lastMu.Unlock()
	now := l.now()
	maps.DeleteFunc(l.logged, func(_ string, then time.Time) bool { return now.Sub(then) >= time.Minute })
	_, found := l.logged[err.Error()]
	if !found {
		l.logged[err.Error()] = now
	}
	return !found
}

// update records the results of reloads, by file. LastReload reports success if the latest result of every file is nil.
func (l *Reloaders) update(results map[string]error) {
	l.lastMu.Lock()
	defer l.lastMu.Unlock()
	for what, err := range results {
		if err != nil {
			l.failed[what] = true
		} else {
			delete(l.failed, what)
		}
	}
	if len(l.failed) > 0 {
		l.ok.Set(0)
		return
	}
	l.last = l.now()
	l.ok.Set(1)
	l.success.Set(float64(l.last.UnixMilli()) / 1000)
}

// LastReload returns whether the last reload of all files succeeded, and the time of the last successful reload. The
// start of the process counts as a reload.
func (l *Reloaders) LastReload() (ok bool, last time.Time) {
	l.lastMu.Lock()
	defer l.lastMu.Unlock()
	return len(l.failed) == 0, l.last
}

// OnHangup reloads the files at each SIGHUP until ctx ends. The signal handler is installed when OnHangup returns.
func (l *Reloaders) OnHangup(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				_ = panics.Call("reading files again", l.Reload) // Reload logs its errors.
			case <-ctx.Done():
				return
			}
		}
	}()
}

// serveReload serves POST and PUT /-/reload. It responds after all files have been reloaded.
func (h *handler) serveReload(w http.ResponseWriter, r *http.Request) {
	switch {
	case h.Reload == nil:
		writeText(w, http.StatusForbidden,
			"reloading over HTTP is disabled; start Cassia with --web.enable-lifecycle, or send SIGHUP")
	case r.Method != http.MethodPost && r.Method != http.MethodPut:
		w.Header().Set("Allow", "POST, PUT")
		writeText(w, http.StatusMethodNotAllowed, "use POST")
	default:
		if err := h.Reload(); err != nil {
			writeText(w, http.StatusInternalServerError, "reloading failed: "+err.Error())
			return
		}
		writeText(w, http.StatusOK, "reloaded")
	}
}
