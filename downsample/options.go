package downsample

import (
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options configure a Loop.
type Options struct {
	// Settle is how long after its end a slot waits for stragglers before it is sealed. Default 15 min.
	Settle time.Duration
	// Interval is the time between rounds. Default 1 min.
	Interval time.Duration
	// HeadBytes is how much the head may hold of settled slots: above it they are sealed at once, without waiting for a round.
	// 0: any amount. Default 64 MiB.
	HeadBytes int64
	// Share is for which share of the time each worker works, at most, and rests in between; while the work lags it
	// rests less (see rest). 1: it never rests. Default 0.5.
	Share float64
	// Workers is how many slots are sealed at the same time, of different partitions as far as there are. Default: a
	// quarter of the processors that Go uses, at least 1.
	Workers int
	// Shared: other processes work over the same engine: the partitions are divided among them by
	// leases. Default false: all are this process' own.
	Shared bool
	// Idle makes a process take no leases: it only lets go of what others have sealed. Default false.
	Idle bool
	// Now is the clock.
	Now func() time.Time
	// Logger gets events for operators.
	Logger *slog.Logger
	// Registerer gets the loop's metrics; nil: none are kept anywhere.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Settle: 15 * time.Minute, Interval: time.Minute, HeadBytes: 64 << 20, Share: 0.5, Workers: max(1, runtime.GOMAXPROCS(0)/4),
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	switch {
	case o.Settle < 0:
		return errors.New("downsample: the grace period is negative")
	case o.Interval <= 0:
		return errors.New("downsample: the interval must be greater than 0")
	case o.HeadBytes < 0:
		return errors.New("downsample: the maximum number of settled slots in the head is negative")
	case !(o.Share > 0 && o.Share <= 1):
		return errors.New("downsample: the share of time must be greater than 0, and at most 1")
	case o.Workers < 1:
		return errors.New("downsample: at least one worker is required")
	case o.Now == nil || o.Logger == nil:
		return errors.New("downsample: Options without a clock or a logger; start from DefaultOptions")
	}
	return nil
}
