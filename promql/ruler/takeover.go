package ruler

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/rules"

	"github.com/cassia-db/cassia/storage/panics"
)

// resumeAhead is the minimum time until a group's next evaluation for which the group is taken over immediately instead
// of at that evaluation.
const resumeAhead = time.Minute

// resumeGroup takes over a group now if it was evaluated before and is next due in resumeAhead or later.
func (m *manager) resumeGroup(ctx context.Context, g *rules.Group) {
	now := m.r.o.Now()
	due := g.EvalTimestamp(now.UnixNano())
	if due.Add(g.Interval()).Sub(now) < resumeAhead {
		return
	}
	if ctx.Err() != nil || !m.r.isConfirmed() || !m.isFresh(g) {
		return
	}
	if _, found, err := m.r.lastStored(ctx, g, due); err != nil || !found {
		return // It is taken over when it is due.
	}
	ctx = m.withAccount(ctx, g)
	refused := m.r.refused.Load()
	m.progress(g)
	newest := m.takeOverGroup(ctx, g, due)
	if m.r.refused.Load() != refused || ctx.Err() != nil {
		m.markFresh(g)
	}
	m.setDone(g, newest)
}

// iterateGroup evaluates a group that is due. At the group's first evaluation, and after this process was suspended, it
// catches up missed evaluations first.
func (m *manager) iterateGroup(ctx context.Context, g *rules.Group, due time.Time) {
	m.runContained(g, func() { m.iterateGroupLocked(ctx, g, due) })
}

// runContained calls f while the group is locked, and recovers from panics outside rules. After a panic, the group
// continues when it is due again.
func (m *manager) runContained(g *rules.Group, f func()) {
	defer m.lockGroup(g)()
	if err := panics.Call(panicName, func() error { f(); return nil }); err != nil {
		g.Logger().Error("evaluation of a rule group panicked; it continues at the next evaluation", "err", err)
	}
}

func (m *manager) iterateGroupLocked(ctx context.Context, g *rules.Group, due time.Time) {
	if !m.r.isConfirmed() {
		// Another process may own the rules now. If not, this evaluation is caught up later.
		m.markFresh(g)
		return
	}
	ctx, end := m.makeCancelable(ctx, g)
	defer end()
	if ctx.Err() != nil {
		return
	}
	ctx = m.withAccount(ctx, g)
	refused := m.r.refused.Load()
	newest := due
	fresh, done := m.progress(g)
	switch missed := !done.IsZero() && due.After(done.Add(g.Interval())); {
	case fresh, missed && !m.isBehind(g):
		newest = m.takeOverGroup(ctx, g, due)
		m.setBehind(g, missed)
	case !due.After(done):
		// Prometheus' manager repeats a time after an evaluation that took long, and a takeover may have evaluated
		// later times. A second evaluation would produce another value for the same time.
		return
	default:
		evaluateGroup(ctx, g, due, rules.DefaultEvalIterationFunc, m.evaluations)
		m.setBehind(g, missed)
	}
	if m.r.refused.Load() != refused || ctx.Err() != nil {
		m.markFresh(g)
	}
	m.setDone(g, newest)
}

// progress reports whether a group must continue from stored results, because another process has evaluated it or this
// one has paused, and removes the mark that markFresh has set. It also returns the newest time at which this process
// has evaluated the group.
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

// isBehind reports whether evaluations had been missed at the last evaluation of a group and were caught up. A group
// that takes longer than its interval misses evaluations each time, and would spend all its time on catching up. So it
// catches up once, and then skips missed evaluations, as in Prometheus.
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

// lockGroup locks the evaluation of a group. The returned function unlocks it.
func (m *manager) lockGroup(g *rules.Group) (unlock func()) {
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

// setDone records the time at which a group was evaluated.
func (m *manager) setDone(g *rules.Group, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[rules.GroupKey(g.File(), g.Name())] = at
}

// markFresh makes a group continue from its stored results at its next evaluation.
func (m *manager) markFresh(g *rules.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh[rules.GroupKey(g.File(), g.Name())] = true
}

// takeOverGroup continues a group where another process, or the previous run of this one, has stopped. It returns the
// newest time at which it has evaluated the group.
//
// Results that are already stored for a time stay unchanged, because readers may have read them. There may be such
// results for times that takeOverGroup evaluates: the last evaluation of the other process may be incomplete, its clock
// may be fast, or it may still be running. takeOverGroup also evaluates the times that become due while it runs,
// because Prometheus' manager skips these times.
func (m *manager) takeOverGroup(ctx context.Context, g *rules.Group, due time.Time) (newest time.Time) {
	begun := m.r.o.Now()
	// The number of evaluations is bounded, because a group that takes longer than its interval would never catch up.
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
		// Alerts are stored with the time since which they have been active, so this time must be restored first. It is
		// looked up for active alerts: a first evaluation finds the active alerts, and a second evaluation at the same
		// time stores them. The alerts are assumed to have been active all the time, without an outage.
		m.r.restoreFiring(ctx, g, first)
		evaluateGroup(withStoredResults(ctx, m.findStored(ctx, g, first, false)), g, first, evaluateOnce, m.evaluations)
		m.r.restoreForState(ctx, g, first)
		accountOf(ctx).clearFound(0)
	}
	defer func() { accountOf(ctx).clearFound(0) }()
	var left []leftoverSeries
	for at := first; isDue(at) && ctx.Err() == nil && m.r.isConfirmed(); at = at.Add(g.Interval()) {
		newest = at
		seen := m.findStored(ctx, g, at, found && at.Equal(last))
		evaluateGroup(withStoredResults(ctx, seen), g, at, rules.DefaultEvalIterationFunc, m.evaluations)
		switch {
		case found && at.Equal(last):
			left = seen.leftovers
			accountOf(ctx).clearFound(seen.leftoverBytes)
		case found && at.Equal(last.Add(g.Interval())):
			m.writeStaleMarkers(ctx, g, left, seen, at)
			left = nil
			accountOf(ctx).clearFound(0)
		default:
			accountOf(ctx).clearFound(0)
		}
		if at.Before(due) && !(found && at.Equal(last)) {
			m.r.metrics.caughtUp.Inc()
		}
	}
	if found && last.Equal(due) || !m.r.isConfirmed() {
		m.markFresh(g) // Another process may have evaluated the same time or later ones.
	}
	return newest
}
