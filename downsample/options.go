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
	// Settle is the time between a slot's end and its sealing. Default 15 min.
	Settle time.Duration
	// Interval is the time between rounds. Default 1 min.
	Interval time.Duration
	// HeadBytes bounds the bytes of settled slots in the head. Above the bound, settled slots are sealed without
	// waiting for the next round. 0: unbounded. Default 64 MiB.
	HeadBytes int64
	// Share is the max fraction of the time during which each worker works. It rests for the remaining time, and less
	// while the work lags (see rest). 1: no rests. Default 0.5.
	Share float64
	// Workers is the number of slots that are sealed concurrently, in different partitions if possible. Default: a
	// quarter of GOMAXPROCS, at least 1.
	Workers int
	// Shared means that multiple processes work on the same engine and divide the partitions by leases. Default false:
	// this process owns all partitions.
	Shared bool
	// Idle makes a process acquire no leases, so that it seals nothing. It only releases from its head the samples that
	// other processes have sealed. Default false.
	Idle bool
	// Now is the clock.
	Now    func() time.Time
	Logger *slog.Logger
	// Registerer registers the loop's metrics; nil: they aren't registered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Settle: 15 * time.Minute, Interval: time.Minute, HeadBytes: 64 << 20, Share: 0.5,
		Workers: max(1, runtime.GOMAXPROCS(0)/4), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
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
