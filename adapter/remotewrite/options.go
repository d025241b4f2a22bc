package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// errOptions means that options are invalid.
var errOptions = errors.New("remotewrite: invalid options")

// maxMaxDecoded is the max value of MaxDecoded, because offsets in a body are kept in 32 bits.
const maxMaxDecoded = 1 << 30

// Options configure a handler.
type Options struct {
	// MaxCompressed is the max size of a body in bytes; larger bodies are rejected with 413. Default 32 MiB, as in
	// Prometheus' receiver.
	MaxCompressed int64
	// MaxDecoded is the max size of a decompressed request in bytes; larger requests are rejected with 413. Default 100
	// MiB, as in Mimir; Prometheus' receiver has 32 MiB, so a sender that works with either works with this handler.
	MaxDecoded int64
	// MaxInFlight bounds the compressed and decompressed bodies of all requests that are being read or decoded, in
	// bytes; above it, requests are rejected with 503. Default 256 MiB.
	MaxInFlight int64
	// Bodies bounds the bodies of all endpoints together. nil means that they are unbounded.
	Bodies *adapter.Budget
	// RetryBusy is the Retry-After of a 503. Default 1 s, because the queue drains quickly.
	RetryBusy time.Duration
	// RetryFull is the Retry-After of a 429. Default 30 s: room for more series appears when a slot is sealed and its
	// series are released.
	RetryFull time.Duration
	// Metadata receives senders' metadata of metrics while a request is decoded, even if its samples are rejected. It
	// must be quick, keep no reference to m's bytes, and bound its memory. If it is nil, metadata is ignored.
	Metadata func(ctx context.Context, tenant string, m Metadata)
	// Limiter holds the tenants' limits on request sizes. nil means no limits. The store enforces all other limits.
	Limiter *tenant.Limiter
	// Rules may change and drop series before they are stored, after HA has removed the replica label. Dropped samples
	// are reported as written, because the sender can't act on them.
	Rules adapter.Shape
	// HA deduplicates replicas. If it is nil, the series of all replicas are stored.
	HA *HA
	// Registerer registers the handler's metrics. If it is nil, they aren't registered.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	// Now is the clock for measuring durations.
	Now func() time.Time
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		MaxCompressed: 32 << 20, MaxDecoded: 100 << 20, MaxInFlight: 256 << 20,
		RetryBusy: time.Second, RetryFull: 30 * time.Second,
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}
}

// LimitInFlight lowers MaxCompressed, MaxDecoded and MaxInFlight so that concurrent requests use at most inFlight
// bytes.
func (o *Options) LimitInFlight(inFlight int64) {
	o.MaxInFlight = min(o.MaxInFlight, inFlight)
	o.MaxDecoded = min(o.MaxDecoded, o.MaxInFlight/4*3)
	o.MaxCompressed = min(o.MaxCompressed, o.MaxInFlight/4)
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	switch {
	case o.MaxCompressed < 1 || o.MaxDecoded < 1 || o.MaxDecoded > maxMaxDecoded:
		return fmt.Errorf("%w: a body must be between 1 and %d bytes", errOptions, maxMaxDecoded)
	case o.MaxInFlight < o.MaxCompressed+o.MaxDecoded:
		return fmt.Errorf("%w: the largest request, %d bytes compressed and %d decoded, exceeds %d bytes",
			errOptions, o.MaxCompressed, o.MaxDecoded, o.MaxInFlight)
	case o.RetryBusy < time.Second || o.RetryFull < time.Second:
		return fmt.Errorf("%w: Retry-After must be at least one second", errOptions)
	case o.Logger == nil || o.Now == nil:
		return fmt.Errorf("%w: logger and clock are required", errOptions)
	}
	return nil
}
