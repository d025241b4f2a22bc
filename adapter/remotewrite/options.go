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

// ErrOptions means that options can't be used.
var ErrOptions = errors.New("remotewrite: invalid options")

// greatest value of MaxDecoded: places in a body are kept in 32 bits.
const maxMaxDecoded = 1 << 30

// Options configure a handler.
type Options struct {
	// MaxCompressed is the greatest body that is read, bytes; more is answered with 413. Default 32 MiB, which
	// is where Prometheus' own receiver stops.
	MaxCompressed int64
	// MaxDecoded is the greatest decompressed request, bytes; more is answered with 413. Default 100 MiB: that
	// is Mimir's limit, and Prometheus' receiver stops at 32 MiB, so a sender that works with either works here.
	MaxDecoded int64
	// MaxInFlight bounds the bodies, compressed and decompressed, of all requests that are being read and
	// decoded, bytes; over it, requests are answered with 503. Default 256 MiB.
	MaxInFlight int64
	// Bodies bounds the bodies of all endpoints; nil: nothing does.
	Bodies *adapter.Budget
	// RetryBusy is the Retry-After of a 503: the queue drains within moments. Default 1 s.
	RetryBusy time.Duration
	// RetryFull is the Retry-After of a 429: series leave memory when their slot is sealed. Default 30 s.
	RetryFull time.Duration
	// Metadata gets senders' metadata of metrics, while a request is being decoded and whatever becomes of its
	// samples. It must be quick, keep no reference to m's bytes, and bound what it stores. nil: ignored.
	Metadata func(ctx context.Context, tenant string, m Metadata)
	// Limiter has the tenants' limits of requests' sizes; nil: there are none. All other limits are the store's to hold.
	Limiter *tenant.Limiter
	// Rules may change and drop series before they are stored, after HA has left out the label of the replica. Dropped samples count as
	// written in the answer, since a sender has nothing to do about them.
	Rules adapter.Shape
	// HA makes one of several replicas; nil: their series stay apart.
	HA *HA
	// Registerer gets the handler's metrics; nil: they are kept nowhere.
	Registerer prometheus.Registerer
	// Logger gets events for operators.
	Logger *slog.Logger
	// Now is the clock that durations are measured with.
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

// Within lowers the bounds of bodies so that all of them together take at most the given number of bytes.
func (o *Options) Within(inFlight int64) {
	o.MaxInFlight = min(o.MaxInFlight, inFlight)
	o.MaxDecoded = min(o.MaxDecoded, o.MaxInFlight/4*3)
	o.MaxCompressed = min(o.MaxCompressed, o.MaxInFlight/4)
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	switch {
	case o.MaxCompressed < 1 || o.MaxDecoded < 1 || o.MaxDecoded > maxMaxDecoded:
		return fmt.Errorf("%w: a body must be between 1 and %d bytes", ErrOptions, maxMaxDecoded)
	case o.MaxInFlight < o.MaxCompressed+o.MaxDecoded:
		return fmt.Errorf("%w: the largest request, %d bytes compressed and %d decoded, exceeds %d bytes",
			ErrOptions, o.MaxCompressed, o.MaxDecoded, o.MaxInFlight)
	case o.RetryBusy < time.Second || o.RetryFull < time.Second:
		return fmt.Errorf("%w: Retry-After must be at least one second", ErrOptions)
	case o.Logger == nil || o.Now == nil:
		return fmt.Errorf("%w: logger and clock are required", ErrOptions)
	}
	return nil
}
