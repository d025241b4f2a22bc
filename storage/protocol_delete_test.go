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

// protocolDeletes is the part of the plain model that describes deletes. The model's lock protects it.
type protocolDeletes struct {
	// sends counts the samples that were sent. sentAt is the number of the last send of each sample.
	sends  int
	sentAt map[protocolFact]int
	// flying counts the running requests that contain a sample.
	flying map[protocolFact]int
	// doubtful contains the samples of failed requests. They may appear at any time.
	doubtful map[protocolFact]bool
	// gone contains the samples that queries must not return, with the number of the last send before their delete.
	gone map[protocolFact]int
	// loose contains deletes that are running, and failed deletes, which may or may not be applied.
	loose map[*protocolDelete]bool
	// begins contains all deletes in the order of their starts.
	begins []*protocolDelete
}

// protocolDelete is a delete of a history.
type protocolDelete struct {
	tenant, series string
	start, end     int64
	// flying contains the samples of requests that were running when the delete started.
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

// mayGo reports whether a sample that is acknowledged now may have been deleted. begun is the number of deletes that
// were started before the sample was sent.
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

// isGone reports whether a query must not return a sample. went is the value of gone at the start of the query.
func (m *protocolDeletes) isGone(went map[protocolFact]int, f protocolFact) bool {
	at, ok := went[f]
	return ok && m.sentAt[f] <= at && !m.doubtful[f]
}

// landed records that a request with sample f has returned. failed is true if the request failed, so that the sample
// may appear at any time.
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

// begin records the start of a delete, and returns the number of the last send before it.
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

// succeed records that a delete has succeeded: queries must not return samples that were sent before it.
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

// delete executes a delete with the arguments TENANT METRIC[/HOST] FROM TO.
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
	if r.eng.isDead() { // The process has stopped, so the caller gets no result.
		return nil
	}
	r.model.succeed(d, last)
	return nil
}

// remove returns a random delete, a cleaning of tombstones, or a recomputation of rollups.
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
