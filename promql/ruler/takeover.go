package ruler

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/rules"

	"github.com/cassia-db/cassia/storage/panics"
)

// resumeAhead is how far ahead the next evaluation of a group must be for it to be taken over at once, instead of then.
const resumeAhead = time.Minute

// resume takes a group over that was evaluated before and that would have to wait for long until it is due.
func (m *manager) resume(ctx context.Context, g *rules.Group) {
	now := m.r.o.Now()
	due := g.EvalTimestamp(now.UnixNano())
	if due.Add(g.Interval()).Sub(now) < resumeAhead {
		return
	}
	if ctx.Err() != nil || !m.r.confirmed() || !m.isFresh(g) {
		return
	}
	if _, found, err := m.r.lastStored(ctx, g, due); err != nil || !found {
		return // It begins when it is due.
	}
	refused := m.r.refused.Load()
	m.progress(g)
	newest := m.takeOver(ctx, g, due)
	if m.r.refused.Load() != refused || ctx.Err() != nil {
		m.freshen(g)
	}
	m.note(g, newest)
}

// iterate evaluates a group at a time when it is due. Before the first time it makes up for those that nobody evaluated,
// as it does after this process was stopped where it stood, or the machine slept.
func (m *manager) iterate(ctx context.Context, g *rules.Group, due time.Time) {
	m.contain(g, func() { m.iterateLocked(ctx, g, due) })
}

// contain gives up what it does with a group where that panics outside of a rule. The group goes on when it is due again.
func (m *manager) contain(g *rules.Group, f func()) {
	defer m.lock(g)()
	if err := panics.Do(evaluating, func() error { f(); return nil }); err != nil {
		g.Logger().Error("evaluation of a rule group panicked; it continues at the next evaluation", "err", err)
	}
}

func (m *manager) iterateLocked(ctx context.Context, g *rules.Group, due time.Time) {
	if !m.r.confirmed() {
		// Another process may evaluate by now. If none does, this is made up for.
		m.freshen(g)
		return
	}
	ctx, end := m.cancelable(ctx, g)
	defer end()
	if ctx.Err() != nil {
		return
	}
	refused := m.r.refused.Load()
	newest := due
	fresh, done := m.progress(g)
	switch missed := !done.IsZero() && due.After(done.Add(g.Interval())); {
	case fresh, missed && !m.isBehind(g):
		newest = m.takeOver(ctx, g, due)
		m.setBehind(g, missed)
	case !due.After(done):
		// Prometheus' manager names a time once more after an evaluation that took long, and taking over may have gone further. A
		// second evaluation would give that time another value.
		return
	default:
		evaluate(ctx, g, due, rules.DefaultEvalIterationFunc, m.evaluations)
		m.setBehind(g, missed)
	}
	if m.r.refused.Load() != refused || ctx.Err() != nil {
		m.freshen(g)
	}
	m.note(g, newest)
}

// progress reports whether a group goes on where another process, or this one some time ago, has ended; and which is the
// newest time that this one has evaluated it at.
func (m *manager) progress(g *rules.Group) (fresh bool, done time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rules.GroupKey(g.File(), g.Name())
	fresh, done = m.fresh[key], m.done[key]
	delete(m.fresh, key)
	return fresh, done
}

func (m *manager) isFresh(g *rules.Group) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fresh[rules.GroupKey(g.File(), g.Name())]
}

// isBehind reports whether the last evaluation of a group came when others should have been before it, and they were made
// up for once. A group that takes longer than its interval is behind each time, and making up for it would take all of
// the time: what it misses is left out, as Prometheus does.
func (m *manager) isBehind(g *rules.Group) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.behind[rules.GroupKey(g.File(), g.Name())]
}

func (m *manager) setBehind(g *rules.Group, behind bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rules.GroupKey(g.File(), g.Name())
	if behind {
		m.behind[key] = true
	} else {
		delete(m.behind, key)
	}
}

// lock has a group be evaluated by one goroutine at a time. The returned function ends that.
func (m *manager) lock(g *rules.Group) (unlock func()) {
	key := rules.GroupKey(g.File(), g.Name())
	m.mu.Lock()
	l := m.locks[key]
	if l == nil {
		l = &sync.Mutex{}
		m.locks[key] = l
	}
	m.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// note notes at which time a group was evaluated.
func (m *manager) note(g *rules.Group, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[rules.GroupKey(g.File(), g.Name())] = at
}

// freshen makes a group read its stored results before it is evaluated the next time.
func (m *manager) freshen(g *rules.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh[rules.GroupKey(g.File(), g.Name())] = true
}

// takeOver goes on where another process, or the one before, has ended. Results that are stored already for a time stay as they
// are, for a value that was seen must not become another one: the last evaluation of the other process may be half done, its
// clock may be ahead, or it may be about to end only. What becomes due meanwhile is evaluated, too, for Prometheus' manager
// leaves that out. takeOver returns the newest time that it has evaluated the group at.
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
		g.Logger().Warn("can't determine when the rules were last evaluated; evaluations that were missed before now are skipped", "err", err)
	} else if found {
		first = last
	}
	if g.HasAlertingRules() {
		// Alerts store nothing until it is known since when they are active, and that is looked up for those that are: they
		// are found by a first evaluation, and stored by a second one at the same time. There was no outage as far as they are
		// concerned: they have been active all the time.
		m.r.keepFiring(ctx, g, first)
		evaluate(noting(ctx, m.stored(ctx, g, first)), g, first, evalOnce, m.evaluations)
		g.RestoreForState(first)
	}
	var left []leftover
	for at := first; isDue(at) && ctx.Err() == nil && m.r.confirmed(); at = at.Add(g.Interval()) {
		newest = at
		seen := m.stored(ctx, g, at)
		evaluate(noting(ctx, seen), g, at, rules.DefaultEvalIterationFunc, m.evaluations)
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
