package ruler

import (
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"
)

// Options configure a Ruler. Fields without a default must be set.
type Options struct {
	// Sources are the rule files.
	Sources []Source
	// Interval is the evaluation interval of groups without one. Default 1 minute.
	Interval time.Duration
	// ExternalLabels are added to sent alerts, and are available in templates as external labels. ExternalURL is the
	// start of links in alerts. For tenants other than the default one, /t/{tenant} is added to it.
	ExternalLabels labels.Labels
	ExternalURL    *url.URL

	// Engine evaluates, Queryable reads and Appendable stores, each for the tenant of its context.
	Engine     promengine.QueryEngine
	Queryable  promstorage.Queryable
	Appendable promstorage.Appendable
	// Parser must be the parser of Engine.
	Parser parser.Parser
	// Send sends alerts to the Alertmanagers; nil: there are none.
	Send rules.Sender

	// Shared is true if other processes may evaluate the same rules. Then the lease decides which process does.
	Shared bool
	// Look is the interval at which the lease is checked. Default 2 seconds.
	Look time.Duration
	// Settle is the time that rules wait after the store is ready, so that senders that also waited for this process
	// catch up first. Default 10 seconds.
	Settle time.Duration
	// CatchUp is the maximum age of missed evaluations that are caught up, after another process or the previous one
	// has ended, but at least two intervals. CatchUpTimes is their maximum number per group. Default 10 minutes and 60.
	CatchUp      time.Duration
	CatchUpTimes int

	// Now is the clock. It doesn't decide when groups are due: Prometheus' manager uses the machine's clock.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Interval: time.Minute, Look: 2 * time.Second, Settle: 10 * time.Second, CatchUp: 10 * time.Minute,
		CatchUpTimes: 60,
		Now:          time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

// Options of Prometheus' manager.
const (
	// resendDelay is the interval at which a firing alert is sent again, as in Prometheus.
	resendDelay = time.Minute
	// outageTolerance is the duration of an outage after which alerts restart, as in Prometheus.
	outageTolerance = time.Hour
	// forGracePeriod is Prometheus' minimum time between a start and an alert of a rule with `for`. Prometheus uses 10
	// minutes, because it doesn't scrape while it is down. Here it is zero, because senders and other processes
	// continue. Alerts that fired continue to fire, with any duration of `for`.
	forGracePeriod = 0
	// repeatLog is the interval at which a message about rules is logged. A rule that stores ten thousand series may
	// cause as many messages.
	repeatLog = 10 * time.Second
)
