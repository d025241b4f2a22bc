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
	newest := due
	switch fresh, done := m.progress(g); {
	case fresh:
		newest = m.takeOver(ctx, g, due)
	case !due.After(done):
		// Prometheus' manager names a time once more after an evaluation that took long, and taking over may have gone further. A
		// second evaluation would give that time another value.
		return
	default:
		rules.DefaultEvalIterationFunc(ctx, g, due)
	}
	if m.r.refused.Load() != refused {
		m.freshen(g)
	}
	m.note(g, newest)
}

// progress says whether a group goes on where another process, or this one some time ago, has ended; and which is the
// newest time that this one has evaluated it at.
func (m *manager) progress(g *rules.Group) (fresh bool, done time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rules.GroupKey(g.File(), g.Name())
	fresh, done = m.fresh[key], m.done[key]
	delete(m.fresh, key)
	return fresh, done
}

// note notes at which time a group was evaluated.
func (m *manager) note(g *rules.Group, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[rules.GroupKey(g.File(), g.Name())] = at
}

// freshen has a group look at what is stored before it is evaluated the next time.
func (m *manager) freshen(g *rules.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh[rules.GroupKey(g.File(), g.Name())] = true
}

// takeOver goes on where another process, or the one before, has ended. What is stored already for a time stays as it is,
// for a value that was seen must not become another one: the last evaluation of the other process may be half done,
// its clock may be ahead, or it may be about to end only. What becomes due meanwhile is evaluated, too, for Prometheus'
// manager leaves that out. takeOver returns the newest time that it has evaluated the group at.
func (m *manager) takeOver(ctx context.Context, g *rules.Group, due time.Time) (newest time.Time) {
	begun := m.r.o.Now()
	// A group that takes longer than its interval never gets to the end.
	latest := due.Add(time.Duration(m.r.o.CatchUpTimes) * g.Interval())
	isDue := func(at time.Time) bool {
		return !at.After(due) || !at.After(latest) && !at.After(due.Add(m.r.o.Now().Sub(begun)))
	}
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
	for at := first; isDue(at) && ctx.Err() == nil && m.r.confirmed(); at = at.Add(g.Interval()) {
		newest = at
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
	return newest
}
