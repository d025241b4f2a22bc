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

// Options set what a Ruler evaluates, and with what. Fields without a default must be set.
type Options struct {
	// Sources name the rule files.
	Sources []Source
	// Interval is how often groups without an interval are evaluated. Default 1 minute.
	Interval time.Duration
	// ExternalLabels are added to alerts that are sent, and are templates' external labels; ExternalURL is where links in
	// alerts lead; those of other tenants than the default one start with /t/{tenant} there.
	ExternalLabels labels.Labels
	ExternalURL    *url.URL

	// Engine evaluates, Queryable reads and Appendable stores, each for the tenant of its context.
	Engine     promengine.QueryEngine
	Queryable  promstorage.Queryable
	Appendable promstorage.Appendable
	// Parser parses what Engine evaluates.
	Parser parser.Parser
	// Send takes alerts for the Alertmanagers; nil: there are none.
	Send rules.Sender

	// Shared: other processes may evaluate the same rules: the lease decides.
	Shared bool
	// Look is the time between two looks at the lease. Default 2 seconds.
	Look time.Duration
	// Settle is how long after the store is ready rules wait: senders that waited for this process, too, catch up first.
	// Default 10 seconds.
	Settle time.Duration
	// CatchUp is how far back evaluations are made that nobody made, after another process or the one before has ended;
	// and CatchUpTimes how many of a group at most. Default 10 minutes and 60. Two intervals are looked back at least.
	CatchUp      time.Duration
	CatchUpTimes int

	// Now is the clock, but for when groups are due: Prometheus' manager looks at that of the machine.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Interval: time.Minute, Look: 2 * time.Second, Settle: 10 * time.Second, CatchUp: 10 * time.Minute, CatchUpTimes: 60,
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

// Options of Prometheus' manager.
const (
	// resendDelay is how often an alert that goes on is sent again, as in Prometheus.
	resendDelay = time.Minute
	// outageTolerance is after which time alerts begin anew, as in Prometheus.
	outageTolerance = time.Hour
	// forGracePeriod is Prometheus' least time between a start and an alert of a rule with `for`. It is 10 minutes there,
	// for a Prometheus that was down has not scraped either. Here senders and other processes went on: none is needed, and
	// alerts that fired go on firing, however short their `for` is.
	forGracePeriod = 0
	// repeatLog is how often a message about rules is logged: one that stores ten thousand series has as many to complain of.
	repeatLog = 10 * time.Second
)
