package ruler

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/rules"

	"github.com/cassia-db/cassia/storage/panics"
)

// resumeAhead is the minimum time to a group's next evaluation at which the group is taken over immediately instead of
// at that evaluation.
const resumeAhead = time.Minute

// resume takes over a group that was evaluated before and isn't due for a long time.
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
		return // It is taken over when it is due.
	}
	refused := m.r.refused.Load()
	m.progress(g)
	newest := m.takeOver(ctx, g, due)
	if m.r.refused.Load() != refused || ctx.Err() != nil {
		m.freshen(g)
	}
	m.note(g, newest)
}

// iterate evaluates a group at a time when it is due. Before the first time, and after this process was suspended or
// the machine slept, it catches up missed evaluations.
func (m *manager) iterate(ctx context.Context, g *rules.Group, due time.Time) {
	m.contain(g, func() { m.iterateLocked(ctx, g, due) })
}

// contain recovers panics outside rules. The group continues when it is due again.
func (m *manager) contain(g *rules.Group, f func()) {
	defer m.lock(g)()
	if err := panics.Do(evaluating, func() error { f(); return nil }); err != nil {
		g.Logger().Error("evaluation of a rule group panicked; it continues at the next evaluation", "err", err)
	}
}

func (m *manager) iterateLocked(ctx context.Context, g *rules.Group, due time.Time) {
	if !m.r.confirmed() {
		// Another process may have taken over. Otherwise this evaluation is caught up later.
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
		// Prometheus' manager repeats a time after an evaluation that took long, and a takeover may have gone past the
		// time. A second evaluation would store another value for that time.
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

// progress reports whether a group has to continue where another process, or this one some time ago, has stopped. It
// also returns the newest time at which this process has evaluated the group.
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

// isBehind reports whether evaluations were missed before the last evaluation of a group and have been caught up once.
// A group that takes longer than its interval is behind each time, and would spend all time on catching up. So it skips
// missed evaluations, as Prometheus does.
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

// lock locks the evaluation of a group. The returned function unlocks it.
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

// note records the time at which a group was evaluated.
func (m *manager) note(g *rules.Group, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[rules.GroupKey(g.File(), g.Name())] = at
}

// freshen makes a group read its stored results before its next evaluation.
func (m *manager) freshen(g *rules.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh[rules.GroupKey(g.File(), g.Name())] = true
}

// takeOver continues where another process, or the previous run, has stopped. Results that are already stored for a
// time stay unchanged, because a value that was read must not change: the last evaluation of the other process may be
// incomplete, its clock may be ahead, or it may still be running. Evaluations that become due during the takeover are
// also made, because Prometheus' manager skips them. takeOver returns the newest time at which it has evaluated the
// group.
func (m *manager) takeOver(ctx context.Context, g *rules.Group, due time.Time) (newest time.Time) {
	begun := m.r.o.Now()
	// A group that takes longer than its interval would never catch up.
	latest := due.Add(time.Duration(m.r.o.CatchUpTimes) * g.Interval())
	isDue := func(at time.Time) bool {
		return !at.After(due) || !at.After(latest) && !at.After(due.Add(m.r.o.Now().Sub(begun)))
	}
	first := due
	last, found, err := m.r.lastStored(ctx, g, due)
	if err != nil {
		g.Logger().Warn(
			"can't determine when the rules were last evaluated; evaluations that were missed before now are skipped",
			"err", err,
		)
	} else if found {
		first = last
	}
	if g.HasAlertingRules() {
		// Alerts are stored only once the time since which they are active is known. It is looked up for active alerts:
		// a first evaluation finds them, and a second one at the same time stores them. No outage is assumed: the
		// alerts have been active all the time.
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
		m.freshen(g) // Another process may have evaluated the same time or later ones.
	}
	return newest
}
