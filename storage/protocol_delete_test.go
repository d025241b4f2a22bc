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

// protocolDeletes is the plain model's state of deletes. The model's lock guards it.
type protocolDeletes struct {
	// sends counts sent samples; sentAt is the last send of a sample.
	sends  int
	sentAt map[protocolFact]int
	// flying counts the requests with a sample that are under way.
	flying map[protocolFact]int
	// doubtful are samples of which a send failed: they may come to be at any time.
	doubtful map[protocolFact]bool
	// gone are samples that mustn't be shown, with the send that was the last before they were deleted.
	gone map[protocolFact]int
	// loose are deletes that are under way, or of which it isn't known whether they take effect.
	loose map[*protocolDelete]bool
	// begins are all deletes, in the order in which they began.
	begins []*protocolDelete
}

// protocolDelete is a delete of a history.
type protocolDelete struct {
	tenant, series string
	start, end     int64
	// flying are samples that were under way when it began.
	flying map[protocolFact]bool
}

func (d *protocolDelete) matches(s protocolSeries, t int64) bool {
	metric, _, one := strings.Cut(d.series, "/")
	return s.tenant == d.tenant && (s.series == d.series || !one && strings.HasPrefix(s.series, metric+"/")) && t >= d.start && t <= d.end
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

// mayGo reports whether a sample that is acknowledged now, and was sent when so many deletes had begun, may be deleted.
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

// isGone reports whether a query that began with went mustn't show a sample.
func (m *protocolDeletes) isGone(went map[protocolFact]int, f protocolFact) bool {
	at, ok := went[f]
	return ok && m.sentAt[f] <= at && !m.doubtful[f]
}

// landed notes that a request has its answer; failed is true if its samples may come to be at any time.
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

// begin notes that a delete begins, and returns the number of the last send before it.
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

// succeed notes that samples sent before a delete are gone.
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

// delete carries out TENANT METRIC[/HOST] FROM TO.
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
	if r.eng.isDead() { // Whoever asked doesn't know.
		return nil
	}
	r.model.succeed(d, last)
	return nil
}

// remove draws a delete, or what follows on it.
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
