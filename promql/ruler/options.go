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
	// URL with which links in alerts start. For tenants other than the default one, /t/{tenant} is added to it.
	ExternalLabels labels.Labels
	ExternalURL    *url.URL

	// Engine evaluates rules, Queryable reads samples and Appendable stores results, each for the tenant in its
	// context.
	Engine     promengine.QueryEngine
	Queryable  promstorage.Queryable
	Appendable promstorage.Appendable
	// Parser must be the parser of Engine.
	Parser parser.Parser
	// Send sends alerts to the Alertmanagers; nil: there are none.
	Send rules.Sender

	// Shared is true if other processes may evaluate the same rules. The process that owns the lease then evaluates
	// them.
	Shared bool
	// LeaseInterval is the interval at which the lease is checked. Default 2 seconds.
	LeaseInterval time.Duration
	// SettleTime is the time for which evaluation waits after the store is ready. Senders that were waiting for this
	// process use it to send their samples first. Default 10 seconds.
	SettleTime time.Duration
	// CatchUp is the maximum age of missed evaluations that are caught up after this process has started or taken over.
	// It is at least two intervals. CatchUpTimes is the maximum number of these evaluations per group. Defaults: 10
	// minutes and 60.
	CatchUp      time.Duration
	CatchUpTimes int

	// MaxBytes is the maximum memory of the results and alerts that rules keep between evaluations, and of the results
	// that are being stored, in bytes. A rule that needs more fails. Takeovers may in addition read results of other
	// processes up to MaxBytes. 0: no bound. Default 256 MiB.
	MaxBytes int64

	// Now is the clock. Groups become due by the machine's clock instead, which Prometheus' manager uses.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Interval: time.Minute, LeaseInterval: 2 * time.Second, SettleTime: 10 * time.Second, CatchUp: 10 * time.Minute,
		CatchUpTimes: 60, MaxBytes: 256 << 20,
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

// Options that are passed to Prometheus' manager.
const (
	// resendDelay is the interval at which a firing alert is sent again, as in Prometheus.
	resendDelay = time.Minute
	// outageTolerance is the duration of an outage after which pending alerts start again, as in Prometheus.
	outageTolerance = time.Hour
	// forGracePeriod is the minimum time between a start of Prometheus and an alert of a rule with `for`. Prometheus
	// uses 10 minutes, because it doesn't scrape while it is stopped. Here it is zero, because senders and other
	// processes continue during a restart. Alerts that were firing continue to fire, with any duration of `for`.
	forGracePeriod = 0
	// repeatLog is the minimum time between two logs of the same message about rules. A rule that stores ten thousand
	// series may cause ten thousand equal messages.
	repeatLog = 10 * time.Second
)
