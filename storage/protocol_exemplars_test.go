package storage

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// protocolExemplar is an exemplar of a series in a history. The exemplar eN has the value N and the trace N.
type protocolExemplar struct {
	protocolSeries
	t     int64
	value float64
	trace string
}

// protocolExemplars is the plain model of exemplars: all that were sent, and those that were acknowledged. In a history
// no slot has more exemplars than are kept.
type protocolExemplars struct {
	sent, sure map[protocolExemplar]bool
}

func (x *protocolSendSample) exemplarOf(tenant string) protocolExemplar {
	return protocolExemplar{protocolSeries{tenant, x.series}, x.t, x.float, x.trace}
}

func (m *protocolModel) sendExemplar(e protocolExemplar) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exemplars.sent == nil {
		m.exemplars = protocolExemplars{map[protocolExemplar]bool{}, map[protocolExemplar]bool{}}
	}
	m.exemplars.sent[e] = true
	m.wasSent(e.fact())
}

// fact returns the exemplar as a protocolFact, by which deletes are modeled.
func (e protocolExemplar) fact() protocolFact {
	return protocolFact{
		e.protocolSeries, e.t, protocolValue{bits: math.Float64bits(e.value), hist: "exemplar " + e.trace},
	}
}

func (m *protocolModel) exemplarStays(begun int, e protocolExemplar) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayGo(e.protocolSeries, e.t, begun) {
		m.exemplars.sure[e] = true
	}
}

// queryExemplars compares the exemplars of a query's range with the model.
func (r *protocolRun) queryExemplars(q query.Query) {
	r.model.mu.Lock()
	needs := maps.Clone(r.model.exemplars.sure)
	r.model.mu.Unlock()
	went, deletes := r.model.went(), r.model.begun()
	before := r.now.Load()
	found, err := r.store.Exemplars(context.Background(), q.Tenant, q.MinT, q.MaxT, q.Matchers)
	after := r.now.Load()
	if err != nil {
		r.tolerate("reading exemplars", err)
		return
	}
	asked := r.visible(q, before, after)
	asked.minT = max(asked.minT, r.mayBeGone())
	got := map[protocolExemplar]bool{}
	for _, s := range found {
		for _, e := range s.Exemplars {
			x := protocolExemplar{
				protocolSeries{q.Tenant, seriesText(s.SeriesLabels)}, e.Ts, e.Value, e.Labels.Get("trace_id"),
			}
			r.model.mu.Lock()
			sent, gone := r.model.exemplars.sent[x], r.model.isGone(went, x.fact())
			r.model.mu.Unlock()
			switch {
			case got[x]:
				r.fail("exemplar %v comes twice", x)
			case !sent:
				r.fail("exemplar %v was never sent", x)
			case gone:
				r.fail("exemplar %v was deleted", x)
			}
			got[x] = true
		}
	}
	if deletes != r.model.begun() {
		return
	}
	for x := range needs {
		matches := x.tenant == q.Tenant && format.MatchesAll(protocolLabels(x.series), q.Matchers)
		if matches && x.t >= asked.minT && x.t <= asked.maxT && !got[x] {
			r.fail("exemplar %v at %s was acknowledged and is missing", x, showTime(x.t))
		}
	}
}

func seriesText(ls labels.Labels) string {
	return ls.Get(labels.MetricName) + "/" + ls.Get("host")
}

// exemplarLines returns all exemplars of a tenant as text.
func (ts *testStore) exemplarLines(tenant string) string {
	found, err := ts.Exemplars(ts.t.Context(), tenant, math.MinInt64, math.MaxInt64,
		[]*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")})
	require.NoError(ts.t, err)
	var out strings.Builder
	for _, s := range found {
		for _, e := range s.Exemplars {
			fmt.Fprintln(&out, seriesText(s.SeriesLabels), e.Ts, e.Value, e.Labels.Get("trace_id"))
		}
	}
	return out.String()
}

func (x *protocolSendSample) exemplar() exemplar.Exemplar {
	return exemplar.Exemplar{Labels: labels.FromStrings("trace_id", x.trace), Value: x.float, Ts: x.t, HasTs: true}
}
