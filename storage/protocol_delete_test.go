package storage

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// protocolFact is a sample that was sent.
type protocolFact struct {
	series protocolSeries
	t      int64
	v      protocolValue
}

// protocolDeletes is the plain model's state of deletes, protected by the model's lock.
type protocolDeletes struct {
	// sends counts sent samples; sentAt is the last send of a sample.
	sends  int
	sentAt map[protocolFact]int
	// flying counts the running requests with a sample.
	flying map[protocolFact]int
	// doubtful are samples with a failed send: they may appear at any time.
	doubtful map[protocolFact]bool
	// gone are samples that must not be shown, with the number of the last send before their delete.
	gone map[protocolFact]int
	// loose are deletes that are running, or may or may not take effect.
	loose map[*protocolDelete]bool
	// begins are all deletes, ordered by their start.
	begins []*protocolDelete
}

// protocolDelete is a delete of a history.
type protocolDelete struct {
	tenant, series string
	start, end     int64
	// flying are samples of requests that were running when it began.
	flying map[protocolFact]bool
}

func (d *protocolDelete) matches(s protocolSeries, t int64) bool {
	metric, _, one := strings.Cut(d.series, "/")
	return s.tenant == d.tenant && (s.series == d.series || !one && strings.HasPrefix(s.series, metric+"/")) &&
		t >= d.start && t <= d.end
}

func (m *protocolDeletes) wasSent(f protocolFact) {
	if m.sentAt == nil {
		m.sentAt = map[protocolFact]int{}
	}
	m.sends++
	m.sentAt[f] = m.sends
	if m.flying == nil {
		m.flying = map[protocolFact]int{}
	}
	m.flying[f]++
}

// mayGo reports whether a sample that is acknowledged now may be deleted; begun is the number of deletes that had begun
// when it was sent.
func (m *protocolDeletes) mayGo(s protocolSeries, t int64, begun int) bool {
	for _, d := range m.begins[begun:] {
		if d.matches(s, t) {
			return true
		}
	}
	for d := range m.loose {
		if d.matches(s, t) {
			return true
		}
	}
	return false
}

// isGone reports whether a query that started with went must not show a sample.
func (m *protocolDeletes) isGone(went map[protocolFact]int, f protocolFact) bool {
	at, ok := went[f]
	return ok && m.sentAt[f] <= at && !m.doubtful[f]
}

// landed records that a request has returned; failed is true if its samples may appear at any time.
func (m *protocolModel) landed(f protocolFact, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying[f]--
	if m.doubtful == nil {
		m.doubtful = map[protocolFact]bool{}
	}
	m.doubtful[f] = m.doubtful[f] || failed
}

func (m *protocolModel) went() map[protocolFact]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.gone)
}

func (m *protocolModel) begun() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.begins)
}

// begin records that a delete begins, and returns the number of the last send before it.
func (m *protocolModel) begin(d *protocolDelete) (last int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begins = append(m.begins, d)
	d.flying = map[protocolFact]bool{}
	for f, n := range m.flying {
		d.flying[f] = n > 0
	}
	if m.loose == nil {
		m.loose = map[*protocolDelete]bool{}
	}
	m.loose[d] = true
	for s, byTime := range m.sure {
		maps.DeleteFunc(byTime, func(t int64, _ protocolValue) bool { return d.matches(s, t) })
	}
	maps.DeleteFunc(m.exemplars.sure, func(e protocolExemplar, _ bool) bool { return d.matches(e.protocolSeries, e.t) })
	return m.sends
}

// succeed records that samples sent before a delete must not be shown.
func (m *protocolModel) succeed(d *protocolDelete, last int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.loose, d)
	if m.gone == nil {
		m.gone = map[protocolFact]int{}
	}
	for f, at := range m.sentAt {
		if at <= last && d.matches(f.series, f.t) && !d.flying[f] {
			m.gone[f] = max(m.gone[f], last)
		}
	}
}

// delete runs TENANT METRIC[/HOST] FROM TO.
func (r *protocolRun) delete(ctx context.Context, words []string) error {
	if len(words) != 4 {
		return fmt.Errorf("a delete needs a tenant, a metric, and two times: %q", words)
	}
	d := &protocolDelete{tenant: words[0], series: words[1]}
	for i, at := range []*int64{&d.start, &d.end} {
		ago, err := time.ParseDuration(words[2+i])
		if err != nil {
			return err
		}
		*at = r.base.Add(ago).UnixMilli()
	}
	metric, host, one := strings.Cut(d.series, "/")
	ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)}
	if one {
		ms = append(ms, labels.MustNewMatcher(labels.MatchEqual, "host", host))
	}
	last := r.model.begin(d)
	if err := r.store.Delete(ctx, d.tenant, d.start, d.end, ms...); err != nil {
		r.tolerate("deleting", err)
		return nil
	}
	if r.eng.isDead() { // The result is unknown to the caller.
		return nil
	}
	r.model.succeed(d, last)
	return nil
}

// remove draws a delete, or its maintenance.
func (m *historyMaker) remove() string {
	switch m.rng.IntN(5) {
	case 0:
		return "clean " + m.tenant()
	case 1:
		return "workoff " + m.tenant()
	}
	a, b := m.time(), m.time()
	series := m.series()
	if m.oneIn(2) {
		series, _, _ = strings.Cut(series, "/")
	}
	return fmt.Sprintf("delete %s %s %v %v", m.tenant(), series, min(a, b), max(a, b))
}
