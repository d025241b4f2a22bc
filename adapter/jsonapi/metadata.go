package jsonapi

import (
	"math"
	"net/http"
	"net/url"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/tenant"
)

// MetricNames answers GET /api/metadata/metricNames.
func (a *API) MetricNames(w http.ResponseWriter, r *http.Request) {
	a.list(w, r, func(p *params) (label string, matchers []*labels.Matcher) { return labels.MetricName, nil })
}

// TagKeys answers GET /api/metadata/tagKeys.
func (a *API) TagKeys(w http.ResponseWriter, r *http.Request) {
	a.list(w, r, func(p *params) (label string, matchers []*labels.Matcher) {
		return "", p.metric()
	})
}

// TagValues answers GET /api/metadata/tagValues.
func (a *API) TagValues(w http.ResponseWriter, r *http.Request) {
	a.list(w, r, func(p *params) (label string, matchers []*labels.Matcher) {
		matchers = p.metric()
		if label = p.needed("tagKey"); label == labels.MetricName {
			p.wrong("tagKey", "is the metric name; use metricNames to list metric names")
		}
		return label, matchers
	})
}

// list answers with the values of the label that of returns, or where it is "", with the names of labels.
func (a *API) list(w http.ResponseWriter, r *http.Request, of func(*params) (string, []*labels.Matcher)) {
	if !a.methods(w, r, http.MethodGet) {
		return
	}
	p := a.params(r)
	label, matchers := of(p)
	if p.err != nil {
		a.fail(w, r, p.err, errorAnswer{})
		return
	}
	ctx, leave, err := a.evaluator.Enter(tenant.Into(r.Context(), p.tenant))
	if err != nil {
		a.fail(w, r, err, errorAnswer{})
		return
	}
	defer leave()
	q := query.Query{Tenant: p.tenant, MinT: math.MinInt64 / 2, MaxT: math.MaxInt64 / 2, Matchers: matchers}
	var texts []string
	if label == "" {
		texts, err = a.db.LabelNames(ctx, q)
		texts = slices.DeleteFunc(texts, func(name string) bool { return name == labels.MetricName })
	} else {
		texts, err = a.db.LabelValues(ctx, label, q)
	}
	if err != nil {
		a.fail(w, r, err, errorAnswer{})
		return
	}
	if texts == nil {
		texts = []string{}
	}
	bytes := int64(0)
	for _, text := range texts {
		bytes += 2 * (int64(len(text)) + 16) // in memory, and in the answer
	}
	a.evaluator.Answered(ctx, bytes)
	a.answer(w, http.StatusOK, texts)
}

// params are those of a GET request. The first that is wrong is kept.
type params struct {
	values url.Values
	tenant string
	err    error
}

func (a *API) params(r *http.Request) *params {
	p := &params{}
	if p.values, p.err = url.ParseQuery(r.URL.RawQuery); p.err != nil {
		p.err = &problem{"parameters", p.err.Error()}
		return p
	}
	asked := p.one("tenant")
	if p.err == nil {
		p.tenant, p.err = a.tenant(r.Context(), "tenant", asked)
	}
	return p
}

func (p *params) wrong(name, text string) {
	if p.err == nil {
		p.err = &problem{name, text}
	}
}

// one returns a parameter that may be given once, or "" where it isn't. A given value mustn't be empty, by the description:
// a client that sends "reducer=" may have lost its value.
func (p *params) one(name string) string {
	given := p.values[name]
	switch {
	case len(given) > 1:
		p.wrong(name, "is set more than once")
	case len(given) == 1 && given[0] == "":
		p.wrong(name, "must not be empty")
	}
	return p.values.Get(name)
}

// needed returns a parameter that must be given.
func (p *params) needed(name string) string {
	v := p.one(name)
	if v == "" {
		p.wrong(name, "is required")
	}
	return v
}

// metric matches the metric that the request names.
func (p *params) metric() []*labels.Matcher {
	return []*labels.Matcher{equal(labels.MetricName, p.needed("metricName"))}
}

func equal(name, value string) *labels.Matcher {
	return &labels.Matcher{Type: labels.MatchEqual, Name: name, Value: value}
}
