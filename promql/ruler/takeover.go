package ruler

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/rules"
)

// iterate evaluates a group at a time when it is due. Before the first time it makes up for those that nobody evaluated.
func (m *manager) iterate(ctx context.Context, g *rules.Group, due time.Time) {
	if m.takeFresh(g) {
		m.takeOver(ctx, g, due)
		return
	}
	rules.DefaultEvalIterationFunc(ctx, g, due)
}

// takeFresh says whether a group is evaluated for the first time since this process began to.
func (m *manager) takeFresh(g *rules.Group) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rules.GroupKey(g.File(), g.Name())
	fresh := m.fresh[key]
	delete(m.fresh, key)
	return fresh
}

// takeOver goes on where another process, or the one before, has ended.
func (m *manager) takeOver(ctx context.Context, g *rules.Group, due time.Time) {
	first, since := due, due
	var left []leftover
	last, found, err := m.lastStored(ctx, g, due)
	if err == nil && found {
		since = last // There was no outage, as far as alerts are concerned: they have been active all the time.
	}
	if err == nil && found && last.Before(due) {
		first = last.Add(g.Interval())
		left, err = m.leftovers(ctx, g, last)
	}
	if err != nil {
		g.Logger().Warn("what was stored before isn't known; the rules go on without", "err", err)
	}
	if g.HasAlertingRules() {
		// Alerts store nothing until it is known since when they are active, and that is looked up for those that are: they
		// are found by a first evaluation, and stored by a second one at the same time.
		g.Eval(ctx, first)
		g.RestoreForState(since)
	}
	for at := first; !at.After(due) && ctx.Err() == nil; at = at.Add(g.Interval()) {
		if at.Equal(first) {
			seen := &stored{}
			rules.DefaultEvalIterationFunc(noting(ctx, seen), g, at)
			m.end(ctx, g, left, seen, at)
		} else {
			rules.DefaultEvalIterationFunc(ctx, g, at)
		}
		if at.Before(due) {
			m.r.metrics.caughtUp.Inc()
		}
	}
}
