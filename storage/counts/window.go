package counts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Once a window of raw rows is over, its series are counted once, and the counts are stored beside the names of its metrics: see format.Counts and
// design/queries.md.
//
//	state of the window ─► count the series ─► the same state? ─► rows: counts, and the change since the window before
//
// The state is a hash of the window's marks, and of the classes that are left out. Rows of counts have it in their keys: a reader finds those of the state in
// which it finds the window, or none, and counts then.

// Bounds of the counts that are stored of a window. Each list has the greatest that fit.
const (
	maxCountedValues  = 100
	maxMetricsBytes   = 512 << 10
	maxLabelsBytes    = 128 << 10
	maxValuesBytes    = 256 << 10
	storedCountBytes  = 16        // of an entry, besides its name, at most
	expiringCountsLag = time.Hour // by so much clocks may differ, about
	// countingBytes bounds the values of labels that are counted at once.
	countingBytes = 32 << 20
)

// countedState are the states of a window that is counted, and of the one before; 0: there is none.
type countedState struct{ state, before uint64 }

// statesOf returns the states of a window whose series are counted.
func statesOf(u *ended.OverWindow) countedState {
	if u.Before == nil {
		return countedState{state: u.Version}
	}
	return countedState{state: u.Version, before: u.Before.State}
}

// Uncounted yields the windows of raw rows that are over and whose series aren't counted, tenant by tenant, of each the oldest first. between is called
// after each window that is looked at, so that a caller can rest. After an error nothing more is yielded.
func (s *Statistics) Uncounted(ctx context.Context, between func()) iter.Seq2[ended.OverWindow, error] {
	return ended.All(ctx, s.env.Tenants, func(tenant string, yield func(ended.OverWindow) bool) (wanted bool, err error) {
		return s.uncountedOf(ctx, tenant, between, yield)
	})
}

// uncountedOf yields those of a tenant.
func (s *Statistics) uncountedOf(ctx context.Context, tenant string, between func(), yield func(ended.OverWindow) bool) (wanted bool, err error) {
	last := s.env.Period.WindowAt(rollup.Raw, s.env.Now().Add(-ended.After).UnixMilli()) - 1
	windows, err := s.env.Windows(ctx, tenant, last)
	if err != nil {
		return false, err
	}
	s.env.Memory.Retain(tenant, format.FirstWindow(rollup.Raw), last, windows)
	var before *ended.EarlierWindow
	for _, w := range windows {
		u := ended.OverWindow{Tenant: tenant, Window: w}
		u.StartMS, u.EndMS = s.env.Period.WindowSpan(w)
		if before != nil && s.env.Period.RawWindowEnd(before.Window) == u.StartMS {
			u.Before = before
		}
		before = nil
		waits, err := s.needsCounts(ctx, &u)
		if err != nil && !errors.Is(err, engine.ErrCorrupt) { // Queries name that.
			return false, err
		}
		if waits && !yield(u) {
			return false, nil
		}
		if err == nil && u.Version != 0 {
			before = &ended.EarlierWindow{Window: w, State: u.Version}
		}
		between()
	}
	return true, nil
}

// needsCounts finds the state of a window, and reports whether its series are to be counted, or compared with those of the window before. The state is left
// 0 where they can't be: rows may still come that no mark will tell of, for what wrote them has the first of its marks only, as an import does.
func (s *Statistics) needsCounts(ctx context.Context, u *ended.OverWindow) (bool, error) {
	if !s.MayHave(u.Window) {
		return false, nil
	}
	state, err := s.State(ctx, u.Tenant, u.Window)
	if err != nil || state == 0 {
		return false, err
	}
	u.Version = state
	switch s.known(u) {
	case countsThere:
		return false, nil
	case countsWait:
		return true, nil
	case countsWaitAgain:
		u.Again = true
		return true, nil
	}
	if rolled, err := s.env.IsRolled(ctx, u.Tenant, u.Window); err != nil || !rolled {
		u.Version = 0
		return false, err
	}
	found, err := s.findCounts(ctx, u)
	if err != nil {
		return false, err
	}
	switch u.Again = found.others; {
	case found.lost: // Until they are made.
	case found.counts && found.change:
		s.setKnown(u, countsThere)
	case s.env.Shared: // Another process may count them.
	case u.Again:
		s.setKnown(u, countsWaitAgain)
	default:
		s.setKnown(u, countsWait)
	}
	return !found.counts || !found.change, nil
}

// State returns the state of a window of a tenant: see stateOf.
func (s *Statistics) State(ctx context.Context, tenant string, window int64) (uint64, error) {
	version, err := s.env.Version(ctx, tenant, window)
	if err != nil || version == 0 {
		return 0, err
	}
	_, others, err := s.env.Classes(ctx, tenant, window)
	return stateOf(version, others), err
}

// MayHave reports whether a window may have rows of counts now. Where rows vanish by themselves, that is only for the week after its end for which
// all labels stand, whatever retention they were written with.
func (s *Statistics) MayHave(window int64) bool {
	return !s.env.Expiring || s.env.Now().Before(s.Vanish(window))
}

// Vanish is when the rows of counts of a window go, where rows vanish by themselves.
func (s *Statistics) Vanish(window int64) time.Time {
	return time.UnixMilli(s.env.Period.WindowEnd(window)).Add(s.env.Kept - expiringCountsLag)
}

// foundCounts is what there is of the counts of a window.
type foundCounts struct {
	counts, change bool     // as far as they are needed
	others         bool     // there are some of other states, or some that can't be read
	lost           bool     // they can't be read
	keys           []string // of those of other states
}

// findCounts looks for rows of counts of a window.
func (s *Statistics) findCounts(ctx context.Context, u *ended.OverWindow) (f foundCounts, err error) {
	head, change := format.CountsKey(u.Version, 0)[0].Text, ""
	if f.change = u.Before == nil; !f.change {
		change = format.CountsChangeKey(u.Version, u.Before.State)[0].Text
	}
	rows := engine.Range{Partition: format.CountsPartition(u.Window, u.Tenant), KeysOnly: true}
	err = s.scanCounts(ctx, rows, func(row engine.Row) error {
		switch key := row.Clustering[0].Text; {
		case key == head:
			f.counts = true
		case key == change:
			f.change = true
		case format.CountsState(key) != head[:16] || format.IsCountsChange(key):
			f.others, f.keys = true, append(f.keys, strings.Clone(key))
		}
		return nil
	})
	if s.known(u) == countsLost {
		f.counts, f.change, f.others, f.lost = false, u.Before == nil, true, true
	}
	return f, err
}

// ErrStateChanged ends counting: the window was written to meanwhile.
var ErrStateChanged = errors.New("storage: the window was written to while its series were counted")

// CountWindow counts the series of a window and stores the counts. It may end anywhere, and begin anew: nothing is stored then, or all. between is
// called between pieces of the work. It returns how many series there are; 0 if it was written to, or counted, meanwhile.
func (s *Statistics) CountWindow(ctx context.Context, u ended.OverWindow, between func()) (series int64, err error) {
	if err := s.env.MayCount(); err != nil {
		return 0, err
	}
	found, err := s.findCounts(ctx, &u)
	if err != nil {
		return 0, err
	}
	if found.counts && found.change { // Another process has counted it.
		s.setKnown(&u, countsThere)
		return 0, nil
	}
	c, err := s.newWindowCount(ctx, &u, between)
	if err == nil {
		err = c.count(ctx, !found.counts, !found.change)
	}
	if err == nil {
		err = c.store(ctx, &u, found)
	}
	switch {
	case errors.Is(err, ErrStateChanged):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("storage: counting the series of window %d of tenant %q: %w", u.Window, u.Tenant, err)
	}
	s.setKnown(&u, countsThere)
	return int64(c.counts.Series), nil
}

// windowCount counts the series of a window, and compares them with those of the window before.
type windowCount struct {
	s            *Statistics
	walk, before *seriesWalk // before: nil, there is none to compare with
	metrics      metricList
	metricsThen  metricList
	limit        int // of a valueCounter
	counts       format.Counts
	change       format.CountsChange
	whole        bool // counts are counted
	tooMany      bool // labels
}

func (s *Statistics) newWindowCount(ctx context.Context, u *ended.OverWindow, between func()) (c *windowCount, err error) {
	c = &windowCount{s: s, limit: cmp.Or(int(s.env.CountingBytes), countingBytes)}
	if c.walk, c.metrics, err = s.strictWalk(ctx, u.Tenant, u.Window, u.Version, between); err != nil || u.Before == nil {
		return c, err
	}
	c.before, c.metricsThen, err = s.strictWalk(ctx, u.Tenant, u.Before.Window, u.Before.State, between)
	return c, err
}

// strictWalk returns a walk over a window in a state, and its metrics. Where rows can't be read, that is an error.
func (s *Statistics) strictWalk(ctx context.Context, tenant string, window int64, state uint64, between func()) (*seriesWalk, metricList, error) {
	classes, _, err := s.env.Classes(ctx, tenant, window)
	if err != nil {
		return nil, nil, err
	}
	if now, err := s.State(ctx, tenant, window); err != nil || now != state {
		return nil, nil, cmp.Or(err, ErrStateChanged)
	}
	names, err := s.env.Metrics(ctx, tenant, window)
	if err != nil {
		return nil, nil, err
	}
	metrics := make(metricList, len(names))
	for i, name := range names {
		metrics[i] = MetricShards{name, 1}
	}
	w := &seriesWalk{tenant: tenant, window: window, classes: classes, between: between, scan: s.env.Scan}
	err = w.scan(ctx, engine.Range{Table: engine.Shards, Partition: format.ShardsPartition(window, tenant)}, func(row engine.Row) error {
		n, err := format.ParseShards(row.Value)
		i, ok := slices.BinarySearch(names, row.Clustering[0].Text)
		if err == nil && ok {
			metrics[i].Shards = n
		}
		return err
	})
	return w, metrics, err
}

// count counts the labels of the window's series, or compares the series with those of the window before, or both.
func (c *windowCount) count(ctx context.Context, whole, compare bool) error {
	var values *valueCounter
	if c.whole = whole; whole {
		values = newValueCounter(c.limit, maxCountedValues)
	}
	names := make([]string, 0, len(c.metrics))
	for _, list := range []metricList{c.metrics, c.metricsThen} {
		for _, m := range list {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		n, err := c.metric(ctx, name, values, compare)
		if err != nil {
			return err
		}
		if n > 0 {
			c.counts.Series += uint64(n)
			c.counts.Metrics = append(c.counts.Metrics, Count{Name: name, Count: uint64(n)})
		}
	}
	if !whole {
		return nil
	}
	for values.endPass() {
		for _, m := range c.metrics {
			if _, err := c.metric(ctx, m.Name, values, false); err != nil {
				return err
			}
		}
	}
	c.tooMany = values.tooMany
	c.finish(values)
	return nil
}

// metric counts the series of a metric, and their labels where values is there.
func (c *windowCount) metric(ctx context.Context, name string, values *valueCounter, compare bool) (series int, err error) {
	m, then := MetricShards{name, c.metrics.shardsOf(name)}, MetricShards{name, c.metricsThen.shardsOf(name)}
	n := stretches(max(m.Shards, then.Shards))
	for stretch := range n {
		ids, err := c.walk.each(ctx, m, stretch, n, values == nil, func(row engine.Row) error {
			if values == nil {
				return nil
			}
			return values.add(row.Value)
		})
		if err != nil {
			return 0, err
		}
		series += len(ids)
		if !compare || c.before == nil {
			continue
		}
		before, err := c.before.each(ctx, then, stretch, n, true, func(engine.Row) error { return nil })
		if err != nil {
			return 0, err
		}
		both := inBoth(ids, before)
		c.change.Added += uint64(len(ids) - both)
		c.change.Gone += uint64(len(before) - both)
	}
	return series, nil
}

// finish puts the counts in order, and leaves out what doesn't fit.
func (c *windowCount) finish(values *valueCounter) {
	n := &c.counts
	n.Labels = values.labels()
	n.AllMetrics = uint64(len(n.Metrics))
	if len(n.Metrics) > 0 {
		n.Labels = append(n.Labels, labelsOfMetrics(len(n.Metrics)))
	}
	n.AllLabels = uint64(len(n.Labels))
	slices.SortFunc(n.Metrics, format.CompareCounts)
	slices.SortFunc(n.Labels, func(a, b format.LabelCounts) int { return format.CompareCounts(a.NamedCount, b.NamedCount) })
	boundCounts(n)
}

// boundCounts leaves out what doesn't fit the rows of counts.
func boundCounts(n *format.Counts) {
	n.Metrics = firstFitting(n.Metrics, maxMetricsBytes, func(c *Count) int { return len(c.Name) })
	n.Labels = firstFitting(n.Labels, maxLabelsBytes, func(l *format.LabelCounts) int { return len(l.Name) })
	for limit := maxCountedValues; ; limit /= 2 {
		size := 0
		for i := range n.Labels {
			l := &n.Labels[i]
			l.Values = l.Values[:min(limit, len(l.Values)):len(l.Values)]
			for _, v := range l.Values {
				size += len(v.Name) + storedCountBytes
			}
		}
		if size <= maxValuesBytes || limit == 0 {
			return
		}
	}
}

// firstFitting returns the first of a list that take so many bytes.
func firstFitting[T any](list []T, most int, size func(*T) int) []T {
	for i := range list {
		if most -= size(&list[i]) + storedCountBytes; most < 0 {
			return list[:i]
		}
	}
	return list
}

// rows returns the rows of the counts, and of the change, if that was counted, too.
func (c *windowCount) rows(u *ended.OverWindow, change bool) (rows []engine.Mutation, err error) {
	put := func(key engine.Key, value []byte) {
		rows = append(rows, engine.Mutation{Clustering: key, Timestamp: c.s.env.Period.WindowEnd(u.Window)*1000 - 1, Value: value})
	}
	if c.whole && !c.tooMany {
		values, err := format.EncodeCounts(&c.counts)
		if err != nil {
			return nil, err
		}
		for i, value := range values {
			put(format.CountsKey(u.Version, i), value)
		}
	}
	if change && u.Before != nil {
		put(format.CountsChangeKey(u.Version, u.Before.State), format.AppendCountsChange(nil, c.change))
	}
	return rows, nil
}

// store writes the counts, unless the windows are in other states now.
func (c *windowCount) store(ctx context.Context, u *ended.OverWindow, found foundCounts) error {
	rows, err := c.rows(u, !found.change)
	if err != nil {
		return err
	}
	// No window is dropped between the look at its state and the write.
	defer c.s.env.Lock()()
	if now, err := c.s.State(ctx, u.Tenant, u.Window); err != nil || now != u.Version {
		return cmp.Or(err, ErrStateChanged)
	}
	if u.Before != nil {
		if now, err := c.s.State(ctx, u.Tenant, u.Before.Window); err != nil || now != u.Before.State {
			return cmp.Or(err, ErrStateChanged)
		}
	}
	expires := int64(0)
	if c.s.env.Expiring {
		expires = c.s.Vanish(u.Window).Unix()
	}
	return c.s.env.Replace(ctx, u, found.keys, rows, expires)
}

// CountedWindow returns a window of a tenant in the state in which it is, with the one before.
func (s *Statistics) CountedWindow(ctx context.Context, tenant string, window int64) (*ended.OverWindow, error) {
	state, err := s.State(ctx, tenant, window)
	u := &ended.OverWindow{Tenant: tenant, Window: window, Version: state}
	u.StartMS, u.EndMS = s.env.Period.WindowSpan(window)
	if err != nil {
		return u, err
	}
	before := s.env.Period.RawWindowAt(u.StartMS)
	if before == window || !s.MayHave(before) {
		return u, nil
	}
	state, err = s.State(ctx, tenant, before)
	if state != 0 {
		u.Before = &ended.EarlierWindow{Window: before, State: state}
	}
	return u, err
}

// Recount returns the rows of counts that a window should have in its state, compared with the window before. It writes nothing. It returns
// ErrStateChanged if the window is in another state.
func (s *Statistics) Recount(ctx context.Context, u *ended.OverWindow) ([]engine.Mutation, error) {
	count, err := s.newWindowCount(ctx, u, func() {})
	if err != nil {
		return nil, err
	}
	if err := count.count(ctx, true, u.Before != nil); err != nil {
		return nil, err
	}
	return count.rows(u, true)
}
