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

// MetricNames handles GET /api/metadata/metricNames.
func (a *API) MetricNames(w http.ResponseWriter, r *http.Request) {
	a.list(w, r, func(p *params) (label string, matchers []*labels.Matcher) { return labels.MetricName, nil })
}

// TagKeys handles GET /api/metadata/tagKeys.
func (a *API) TagKeys(w http.ResponseWriter, r *http.Request) {
	a.list(w, r, func(p *params) (label string, matchers []*labels.Matcher) {
		return "", p.metric()
	})
}

// TagValues handles GET /api/metadata/tagValues.
func (a *API) TagValues(w http.ResponseWriter, r *http.Request) {
	a.list(w, r, func(p *params) (label string, matchers []*labels.Matcher) {
		matchers = p.metric()
		if label = p.required("tagKey"); label == labels.MetricName {
			p.setError("tagKey", "is the metric name; use metricNames to list metric names")
		}
		return label, matchers
	})
}

// list responds with the values of a label, or with the names of labels if the name returned by of is "".
func (a *API) list(w http.ResponseWriter, r *http.Request, of func(*params) (string, []*labels.Matcher)) {
	if !a.allowsMethod(w, r, http.MethodGet) {
		return
	}
	p := a.params(r)
	label, matchers := of(p)
	if p.err != nil {
		a.fail(w, r, p.err, errorAnswer{})
		return
	}
	ctx, leave, err := a.evaluator.Enter(tenant.NewContext(r.Context(), p.tenant))
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
		bytes += 2 * (int64(len(text)) + 16) // once in memory and once in the response
	}
	a.evaluator.Answered(ctx, bytes)
	a.answer(w, http.StatusOK, texts)
}

// params are the parameters of a GET request. The first error is kept.
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
	asked := p.optional("tenant")
	if p.err == nil {
		p.tenant, p.err = a.tenant(r.Context(), "tenant", asked)
	}
	return p
}

func (p *params) setError(name, text string) {
	if p.err == nil {
		p.err = &problem{name, text}
	}
}

// optional returns a parameter that may be given at most once, or "" if it is missing. As specified, an empty value is
// an error: a client that sends "reducer=" may have lost the value.
func (p *params) optional(name string) string {
	given := p.values[name]
	switch {
	case len(given) > 1:
		p.setError(name, "is set more than once")
	case len(given) == 1 && given[0] == "":
		p.setError(name, "must not be empty")
	}
	return p.values.Get(name)
}

// required returns a required parameter.
func (p *params) required(name string) string {
	v := p.optional(name)
	if v == "" {
		p.setError(name, "is required")
	}
	return v
}

// metric returns the matcher of the metric named by the request.
func (p *params) metric() []*labels.Matcher {
	return []*labels.Matcher{equalMatcher(labels.MetricName, p.required("metricName"))}
}

func equalMatcher(name, value string) *labels.Matcher {
	return &labels.Matcher{Type: labels.MatchEqual, Name: name, Value: value}
}
