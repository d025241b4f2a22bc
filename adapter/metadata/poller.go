package metadata

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/storage/panics"
)

// Options configure a Poller. Fields without a default must be set.
type Options struct {
	Sources []Source
	// Note is called with the metadata of each metric, usually storage.Store's QueueMetadata. The callee owns the
	// bytes.
	Note func(tenant string, metric []byte, kind string, unit, help []byte)

	// Every is the time from a response to the next request. Default 2 min.
	Every time.Duration
	// Again is the delay before a request is repeated after a failure or an empty response. It doubles with each
	// repetition, up to Every. Default 5 s.
	Again time.Duration
	// Timeout bounds a request including its response. Default 30 s.
	Timeout time.Duration
	// MaxBytes bounds a response in bytes. Default 64 MiB.
	MaxBytes int64

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{Every: 2 * time.Minute, Again: 5 * time.Second, Timeout: 30 * time.Second, MaxBytes: 64 << 20}
}

// Poller polls the sources.
type Poller struct {
	o        Options
	requests *prometheus.CounterVec
	success  *prometheus.GaugeVec
}

// Results of a request.
const (
	resultOK     = "ok"
	resultFailed = "failed"
)

// New returns a poller; Run starts it.
func New(o Options) *Poller {
	f := promauto.With(o.Registerer)
	p := &Poller{
		o: o,
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_metadata_requests_total",
			Help: "Requests for metric metadata to the servers of --metadata.from, by result: ok or failed."},
			[]string{"tenant", "url", "result"}),
		success: f.NewGaugeVec(prometheus.GaugeOpts{Name: "cassia_metadata_last_success_timestamp_seconds",
			Help: "Time of the last successful metadata request to a server of --metadata.from, in Unix seconds."},
			[]string{"tenant", "url"}),
	}
	for _, s := range o.Sources {
		p.requests.WithLabelValues(s.Tenant, s.name(), resultOK)
		p.requests.WithLabelValues(s.Tenant, s.name(), resultFailed)
	}
	return p
}

// Run polls every source until ctx is canceled.
func (p *Poller) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, s := range p.o.Sources {
		running.Go(func() { panics.Repeat(ctx, "fetching metadata", func() { p.poll(ctx, s) }) })
	}
	running.Wait()
}

func (p *Poller) poll(ctx context.Context, s Source) {
	again, failing := p.o.Again, false
	log := p.o.Logger.With("tenant", s.Tenant, "url", s.name())
	for {
		found, err := p.pollOnce(ctx, s)
		if ctx.Err() != nil {
			return
		}
		wait := p.o.Every
		if err != nil || found == 0 { // A Prometheus that has just started has no metadata until it has scraped.
			wait, again = min(again, p.o.Every), 2*min(again, p.o.Every)
		} else {
			again = p.o.Again
		}
		switch {
		case err != nil && !failing: // Only the first of consecutive failures is logged.
			log.Warn("can't fetch metric metadata from a server of --metadata.from; retrying", "in", wait, "err", err)
		case err == nil && failing:
			log.Info("fetching metric metadata from a server of --metadata.from works again", "metrics", found)
		}
		failing = err != nil
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// pollOnce sends one request and returns the number of metrics in the response.
func (p *Poller) pollOnce(ctx context.Context, s Source) (int, error) {
	found, err := p.fetch(ctx, s)
	switch {
	case err == nil:
		p.requests.WithLabelValues(s.Tenant, s.name(), resultOK).Inc()
		p.success.WithLabelValues(s.Tenant, s.name()).SetToCurrentTime()
	case ctx.Err() == nil:
		p.requests.WithLabelValues(s.Tenant, s.name(), resultFailed).Inc()
	}
	return found, err
}
