package ruler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/rules"

	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/tenant"
)

const (
	// maxSearchedEvaluations is the maximum number of past evaluations that are searched for the last one at which an
	// alert's expression was true.
	maxSearchedEvaluations = 11_000
	// maxRepeatedEvaluations is the maximum number of evaluations found by this search that are repeated, newest first.
	maxRepeatedEvaluations = 60
	// alertStateLabel is the label of the series ALERTS that contains the state.
	alertStateLabel = "alertstate"
)

// restoreFiring restores alerts that fire at the time at only because of keep_firing_for: their expression is no longer
// true, and Prometheus restores only alerts whose expression is true. Rules that have already been restored are
// skipped. The alerts that fired are read from the store. Their expression is evaluated again at earlier times, to find
// their annotations and the time since which it hasn't been true.
func (r *Ruler) restoreFiring(ctx context.Context, g *rules.Group, at time.Time) {
	for _, rule := range g.AlertingRules() {
		if rule.KeepFiringFor() <= 0 || rule.Restored() {
			continue
		}
		if err := panics.Call(panicName, func() error { return r.restoreFiringOf(ctx, g, rule, at) }); err != nil {
			g.Logger().Warn(
				"can't restore which alerts are firing because of keep_firing_for; alerts whose expression no longer matches are resolved",
				"alert", rule.Name(), "err", err,
			)
		}
	}
}

func (r *Ruler) restoreFiringOf(ctx context.Context, g *rules.Group, rule *rules.AlertingRule, at time.Time) error {
	accountOf(ctx).adoptGroup(g)
	defer accountOf(ctx).clearFound(0)
	fired, err := r.firedAlerts(ctx, g, rule, at)
	if err != nil || len(fired) == 0 {
		return err
	}
	first := at
	for _, f := range fired {
		if f.at.Before(first) {
			first = f.at
		}
	}
	times, err := r.lastTrueTimes(ctx, g, rule, first.Add(-rule.KeepFiringFor()), at)
	if err != nil {
		return err
	}
	for _, t := range times {
		e := &evaluation{rule: rule, account: accountOf(ctx)}
		_, err := rule.Eval(e.addToContext(ctx), g.QueryOffset(), t, r.ruleQuery,
			r.externalURL(tenant.FromContext(ctx)), 0)
		e.finishRule()
		if err != nil {
			return err
		}
		rule.ForEachActiveAlert(func(a *rules.Alert) {
			f, ok := fired[a.Labels.String()]
			if !ok || a.State != rules.StatePending {
				return
			}
			a.State, a.FiredAt, a.KeepFiringSince = rules.StateFiring, t, t.Add(g.Interval())
			if !f.since.IsZero() {
				a.ActiveAt = f.since
			}
		})
	}
	return nil
}

// firedBytes is the size of an alert in the maps of firedAlerts, without the text of its labels, in bytes.
const firedBytes = 160

// firedAlert is a stored alert that fired.
type firedAlert struct {
	// at is the last time at which the alert is known to have fired. since is the time at which it became active.
	at, since time.Time
}

// firedAlerts returns the alerts of a rule that were firing at its last evaluation up to the time at. Evaluations more
// than outageTolerance earlier are ignored. The keys are the labels of the alerts as text.
func (r *Ruler) firedAlerts(ctx context.Context, g *rules.Group, rule *rules.AlertingRule,
	at time.Time) (map[string]firedAlert, error) {
	type last struct {
		t int64
		v float64
	}
	firing, since := map[string]last{}, map[string]last{}
	drop := func(ls labels.Labels) string {
		return labels.NewBuilder(ls).Del(labels.MetricName, alertStateLabel).Labels().String()
	}
	from := at.Add(-outageTolerance)
	err := r.eachStoredSample(ctx, g, rule, from, at, 0, func(ls labels.Labels, t int64, v float64) error {
		to := since
		if ls.Get(labels.MetricName) == alertsMetric {
			if ls.Get(alertStateLabel) != rules.StateFiring.String() {
				return nil
			}
			to = firing
		}
		key := drop(ls)
		l, ok := to[key]
		if !ok || t >= l.t {
			to[key] = last{t, v}
		}
		if ok {
			return nil
		}
		// The key is also in the result.
		return accountOf(ctx).addFound(textBytes(len(key)) + firedBytes)
	})
	if err != nil {
		return nil, err
	}
	found := map[string]firedAlert{}
	for key, l := range firing {
		if value.IsStaleNaN(l.v) {
			continue
		}
		f := firedAlert{at: timestamp.Time(l.t).Add(g.QueryOffset())}
		if s, ok := since[key]; ok && !value.IsStaleNaN(s.v) {
			f.since = time.Unix(int64(s.v), 0).UTC()
		}
		found[key] = f
	}
	return found, nil
}

// lastTrueTimes returns the last evaluation time in [from, to) at which a rule's expression was true, for each series
// of the expression. The times are sorted and have no duplicates. If there are more than maxRepeatedEvaluations, only
// the newest are returned.
func (r *Ruler) lastTrueTimes(ctx context.Context, g *rules.Group,
	rule *rules.AlertingRule, from, to time.Time) ([]time.Time, error) {
	steps := min(int64(to.Sub(from)/g.Interval()), maxSearchedEvaluations)
	if steps < 1 {
		return nil, nil
	}
	begin, end := to.Add(-time.Duration(steps)*g.Interval()), to.Add(-g.Interval())
	q, err := r.o.Engine.NewRangeQuery(ctx, r.o.Queryable, nil, rule.Query().String(),
		begin.Add(-g.QueryOffset()), end.Add(-g.QueryOffset()), g.Interval())
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	matrix, err := result.Matrix()
	if err != nil {
		return nil, fmt.Errorf("the expression of alert %s: %w", rule.Name(), err)
	}
	var times []time.Time
	for _, series := range matrix {
		t := int64(0)
		if n := len(series.Floats); n > 0 {
			t = series.Floats[n-1].T
		}
		if n := len(series.Histograms); n > 0 {
			t = max(t, series.Histograms[n-1].T)
		}
		// Points have times in milliseconds. The evaluation time in nanoseconds is computed from the number of
		// intervals.
		k := (t - timestamp.FromTime(begin.Add(-g.QueryOffset()))) / g.Interval().Milliseconds()
		times = append(times, begin.Add(time.Duration(k)*g.Interval()))
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.CompactFunc(times, time.Time.Equal)
	return times[max(0, len(times)-maxRepeatedEvaluations):], nil
}
