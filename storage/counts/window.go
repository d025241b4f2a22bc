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

// After a raw window has ended, its series are counted once, and the counts are stored next to the names of its
// metrics: see format.Counts and design/queries.md.
//
//	state of the window ─► count the series ─► the same state? ─► rows: counts, and the change since the window before
//
// The state is a hash of the window's commit records and of the classes that aren't counted. It is part of the keys of
// the counts. A reader reads the counts for the window's current state. If there are none, it counts the series.

// These constants limit the stored counts of a window. Each list contains the largest counts that fit.
const (
	maxCountedValues  = 100
	maxMetricsBytes   = 512 << 10
	maxLabelsBytes    = 128 << 10
	maxValuesBytes    = 256 << 10
	storedCountBytes  = 16        // max size of an entry without its name
	expiringCountsLag = time.Hour // approximate difference of clocks
	// countingBytes is the maximum size of the label values that are counted together.
	countingBytes = 32 << 20
)

// countedState contains the state of a window that is counted, and the state of the previous window, or 0 if there is
// none.
type countedState struct{ state, before uint64 }

// newCountedState returns the states of a counted window and of the previous window.
func newCountedState(u *ended.OverWindow) countedState {
	if u.Before == nil {
		return countedState{state: u.Version}
	}
	return countedState{state: u.Version, before: u.Before.State}
}

// Uncounted yields the ended raw windows whose series aren't counted, tenant by tenant, oldest first. It calls between
// after each window that it checks, so that the caller can pause. It stops after an error.
func (s *Statistics) Uncounted(ctx context.Context, between func()) iter.Seq2[ended.OverWindow, error] {
	return ended.AllWindows(
		ctx, s.env.Tenants, func(tenant string, yield func(ended.OverWindow) bool) (wanted bool, err error) {
			return s.uncountedIn(ctx, tenant, between, yield)
		},
	)
}

// uncountedIn is Uncounted for one tenant.
func (s *Statistics) uncountedIn(
	ctx context.Context, tenant string, between func(), yield func(ended.OverWindow) bool,
) (wanted bool, err error) {
	last := s.env.Period.WindowAt(rollup.Raw, s.env.Now().Add(-ended.EndedAfter).UnixMilli()) - 1
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
		if err != nil && !errors.Is(err, engine.ErrCorrupt) { // Queries report corrupt rows.
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

// needsCounts sets the state of a window, and reports whether its series must be counted or compared with the previous
// window. The state remains 0 if the window can't be counted yet, because its rollups are incomplete. A writer such as
// an import may then have written only its first commit record, and its further rows won't change the state.
func (s *Statistics) needsCounts(ctx context.Context, u *ended.OverWindow) (bool, error) {
	if !s.MayHaveCounts(u.Window) {
		return false, nil
	}
	state, err := s.WindowState(ctx, u.Tenant, u.Window)
	if err != nil || state == 0 {
		return false, err
	}
	u.Version = state
	switch s.cachedState(u) {
	case countsStored:
		return false, nil
	case countsMissing:
		return true, nil
	case countsOutdated:
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
	case found.lost: // The cached value stays countsUnreadable until counts are written again.
	case found.counts && found.change:
		s.setCachedState(u, countsStored)
	case s.env.Shared: // Nothing is cached, because another process may count the window.
	case u.Again:
		s.setCachedState(u, countsOutdated)
	default:
		s.setCachedState(u, countsMissing)
	}
	return !found.counts || !found.change, nil
}

// WindowState returns the state of a window of a tenant: see stateOf.
func (s *Statistics) WindowState(ctx context.Context, tenant string, window int64) (uint64, error) {
	version, err := s.env.Version(ctx, tenant, window)
	if err != nil || version == 0 {
		return 0, err
	}
	_, others, err := s.env.Classes(ctx, tenant, window)
	return stateOf(version, others), err
}

// MayHaveCounts reports whether a window may have stored counts now. If the engine expires rows, counts exist only for
// Env.Kept after the end of the window. During this time labels don't expire under any retention.
func (s *Statistics) MayHaveCounts(window int64) bool {
	return !s.env.Expiring || s.env.Now().Before(s.CountsExpiry(window))
}

// CountsExpiry returns the time at which the stored counts of a window expire, if the engine expires rows.
func (s *Statistics) CountsExpiry(window int64) time.Time {
	return time.UnixMilli(s.env.Period.WindowEnd(window)).Add(s.env.Kept - expiringCountsLag)
}

// foundCounts describes the stored counts of a window.
type foundCounts struct {
	counts, change bool     // these rows are stored, or not needed
	others         bool     // there are counts of other states, or unreadable ones
	lost           bool     // there are unreadable counts
	keys           []string // keys of the counts of other states
}

// findCounts scans the rows of counts of a window.
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
	if s.cachedState(u) == countsUnreadable {
		f.counts, f.change, f.others, f.lost = false, u.Before == nil, true, true
	}
	return f, err
}

// ErrStateChanged means that a window was written to while it was counted, so its counts weren't stored.
var ErrStateChanged = errors.New("storage: the window was written to while its series were counted")

// CountWindow counts the series of a window and stores the counts. It stores either all counts or none, so it can be
// interrupted and restarted. It calls between after each part of the work. It returns the number of series, or 0 if the
// window was written to or counted concurrently.
func (s *Statistics) CountWindow(ctx context.Context, u ended.OverWindow, between func()) (series int64, err error) {
	if err := s.env.MayCount(); err != nil {
		return 0, err
	}
	found, err := s.findCounts(ctx, &u)
	if err != nil {
		return 0, err
	}
	if found.counts && found.change { // Another process has counted the window.
		s.setCachedState(&u, countsStored)
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
	s.setCachedState(&u, countsStored)
	return int64(c.counts.Series), nil
}

// windowCount counts the series of a window, and compares them with the series of the previous window.
type windowCount struct {
	s            *Statistics
	walk, before *seriesWalk // before is nil if there is no window to compare with
	metrics      metricList
	metricsThen  metricList
	limit        int // limit of the valueCounter
	counts       format.Counts
	change       format.CountsChange
	whole        bool // counts has been computed
	tooMany      bool // there are too many labels to store their counts
}

func (s *Statistics) newWindowCount(
	ctx context.Context, u *ended.OverWindow, between func(),
) (c *windowCount, err error) {
	c = &windowCount{s: s, limit: cmp.Or(int(s.env.CountingBytes), countingBytes)}
	if c.walk, c.metrics, err = s.newStrictWalk(ctx, u.Tenant, u.Window, u.Version, between); err != nil ||
		u.Before == nil {
		return c, err
	}
	c.before, c.metricsThen, err = s.newStrictWalk(ctx, u.Tenant, u.Before.Window, u.Before.State, between)
	return c, err
}

// newStrictWalk returns a walk over a window, and the window's metrics. It returns ErrStateChanged if the window is in
// another state. The walk returns an error for unreadable rows.
func (s *Statistics) newStrictWalk(
	ctx context.Context, tenant string, window int64, state uint64, between func(),
) (*seriesWalk, metricList, error) {
	classes, _, err := s.env.Classes(ctx, tenant, window)
	if err != nil {
		return nil, nil, err
	}
	if now, err := s.WindowState(ctx, tenant, window); err != nil || now != state {
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
	err = w.scan(ctx, engine.Range{Table: engine.Shards, Partition: format.ShardsPartition(window, tenant)},
		func(row engine.Row) error {
			n, err := format.ParseShards(row.Value)
			i, ok := slices.BinarySearch(names, row.Clustering[0].Text)
			if err == nil && ok {
				metrics[i].Shards = n
			}
			return err
		})
	return w, metrics, err
}

// count counts the labels of the window's series if whole is true. If compare is true, it compares the series with the
// previous window.
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
		n, err := c.countMetric(ctx, name, values, compare)
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
			if _, err := c.countMetric(ctx, m.Name, values, false); err != nil {
				return err
			}
		}
	}
	c.tooMany = values.tooMany
	c.finish(values)
	return nil
}

// countMetric counts the series of a metric, and also their labels if values isn't nil.
func (c *windowCount) countMetric(
	ctx context.Context, name string, values *valueCounter, compare bool,
) (series int, err error) {
	m, then := MetricShards{name, c.metrics.shardsOf(name)}, MetricShards{name, c.metricsThen.shardsOf(name)}
	n := countStretches(max(m.Shards, then.Shards))
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
		both := countCommon(ids, before)
		c.change.Added += uint64(len(ids) - both)
		c.change.Gone += uint64(len(before) - both)
	}
	return series, nil
}

// finish sorts the counts, and removes the smallest counts if not all counts fit in their rows.
func (c *windowCount) finish(values *valueCounter) {
	n := &c.counts
	n.Labels = values.labels()
	n.AllMetrics = uint64(len(n.Metrics))
	if len(n.Metrics) > 0 {
		n.Labels = append(n.Labels, labelsOfMetrics(len(n.Metrics)))
	}
	n.AllLabels = uint64(len(n.Labels))
	slices.SortFunc(n.Metrics, format.CompareCounts)
	slices.SortFunc(n.Labels, func(a, b format.LabelCounts) int {
		return format.CompareCounts(a.NamedCount, b.NamedCount)
	})
	limitCounts(n)
}

// limitCounts removes the smallest counts, so that the remaining counts fit in their rows.
func limitCounts(n *format.Counts) {
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

// firstFitting returns the first entries of a list whose total size is at most most bytes.
func firstFitting[T any](list []T, most int, size func(*T) int) []T {
	for i := range list {
		if most -= size(&list[i]) + storedCountBytes; most < 0 {
			return list[:i]
		}
	}
	return list
}

// rows returns the rows of the counts, if they were counted. If change is true, it also returns the row of the change.
func (c *windowCount) rows(u *ended.OverWindow, change bool) (rows []engine.Mutation, err error) {
	put := func(key engine.Key, value []byte) {
		rows = append(rows, engine.Mutation{
			Clustering: key, Timestamp: c.s.env.Period.WindowEnd(u.Window)*1000 - 1, Value: value,
		})
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

// store writes the counts. It returns ErrStateChanged if the state of a window has changed.
func (c *windowCount) store(ctx context.Context, u *ended.OverWindow, found foundCounts) error {
	rows, err := c.rows(u, !found.change)
	if err != nil {
		return err
	}
	// The lock prevents drops between the read of the states and the write.
	defer c.s.env.Lock()()
	if now, err := c.s.WindowState(ctx, u.Tenant, u.Window); err != nil || now != u.Version {
		return cmp.Or(err, ErrStateChanged)
	}
	if u.Before != nil {
		if now, err := c.s.WindowState(ctx, u.Tenant, u.Before.Window); err != nil || now != u.Before.State {
			return cmp.Or(err, ErrStateChanged)
		}
	}
	expires := int64(0)
	if c.s.env.Expiring {
		expires = c.s.CountsExpiry(u.Window).Unix()
	}
	return c.s.env.Replace(ctx, u, found.keys, rows, expires)
}

// CountedWindow returns a tenant's window with its current state, and the previous window.
func (s *Statistics) CountedWindow(ctx context.Context, tenant string, window int64) (*ended.OverWindow, error) {
	state, err := s.WindowState(ctx, tenant, window)
	u := &ended.OverWindow{Tenant: tenant, Window: window, Version: state}
	u.StartMS, u.EndMS = s.env.Period.WindowSpan(window)
	if err != nil {
		return u, err
	}
	before := s.env.Period.RawWindowAt(u.StartMS)
	if before == window || !s.MayHaveCounts(before) {
		return u, nil
	}
	state, err = s.WindowState(ctx, tenant, before)
	if state != 0 {
		u.Before = &ended.EarlierWindow{Window: before, State: state}
	}
	return u, err
}

// Recount returns the rows of counts that a window should have for its state, including the change since the previous
// window. It writes nothing. It returns ErrStateChanged if the window is in another state.
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
