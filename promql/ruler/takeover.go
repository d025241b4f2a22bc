package ruler

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/rules"
)

// iterate evaluates a group at a time when it is due. Before the first time it makes up for those that nobody evaluated.
func (m *manager) iterate(ctx context.Context, g *rules.Group, due time.Time) {
	if !m.r.confirmed() {
		// Another process may evaluate by now. If none does, this is made up for.
		m.freshen(g)
		return
	}
	refused := m.r.refused.Load()
	if m.takeFresh(g) {
		m.takeOver(ctx, g, due)
	} else {
		rules.DefaultEvalIterationFunc(ctx, g, due)
	}
	if m.r.refused.Load() != refused {
		m.freshen(g)
	}
}

// takeFresh says whether a group goes on where another process, or this one some time ago, has ended.
func (m *manager) takeFresh(g *rules.Group) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rules.GroupKey(g.File(), g.Name())
	fresh := m.fresh[key]
	delete(m.fresh, key)
	return fresh
}

// freshen has a group look at what is stored before it is evaluated the next time.
func (m *manager) freshen(g *rules.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh[rules.GroupKey(g.File(), g.Name())] = true
}

// takeOver goes on where another process, or the one before, has ended. What is stored already for a time stays as it is,
// for a value that was seen must not become another one: the last evaluation of the other process may be half done,
// its clock may be ahead, or it may be about to end only.
func (m *manager) takeOver(ctx context.Context, g *rules.Group, due time.Time) {
	first := due
	last, found, err := m.r.lastStored(ctx, g, due)
	if err != nil {
		g.Logger().Warn("when the rules were evaluated before isn't known; they go on without", "err", err)
	} else if found {
		first = last
	}
	if g.HasAlertingRules() {
		// Alerts store nothing until it is known since when they are active, and that is looked up for those that are: they
		// are found by a first evaluation, and stored by a second one at the same time. There was no outage as far as they are
		// concerned: they have been active all the time.
		g.Eval(noting(ctx, m.stored(ctx, g, first)), first)
		g.RestoreForState(first)
	}
	var left []leftover
	for at := first; !at.After(due) && ctx.Err() == nil && m.r.confirmed(); at = at.Add(g.Interval()) {
		seen := m.stored(ctx, g, at)
		rules.DefaultEvalIterationFunc(noting(ctx, seen), g, at)
		switch {
		case found && at.Equal(last):
			left = seen.left
		case found && at.Equal(last.Add(g.Interval())):
			m.end(ctx, g, left, seen, at)
		}
		if at.Before(due) && !(found && at.Equal(last)) {
			m.r.metrics.caughtUp.Inc()
		}
	}
	if found && last.Equal(due) || !m.r.confirmed() {
		m.freshen(g) // Another process is as far as this one, or further; or it may be.
	}
}
