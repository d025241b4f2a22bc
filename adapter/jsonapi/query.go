package jsonapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"

	"github.com/cassia-db/cassia/storage/labelorder"
)

// Bounds of a query.
const (
	// maxRange is the max time between start and end.
	maxRange = 100 * 365 * 24 * time.Hour
	// maxPoints is the max number of points of an aligned series, as in Prometheus.
	maxPoints = 11_000
	// maxTerms is the max number of tags in matchers, and of tags in groupBy.
	maxTerms = 64
)

// Query handles GET /api/query.
func (a *API) Query(w http.ResponseWriter, r *http.Request) {
	if !a.allowsMethod(w, r, http.MethodGet) {
		return
	}
	p := a.params(r)
	metric := p.required("metricName")
	q := p.parseEvaluation(metric, a.opts.Now())
	if p.err != nil {
		a.fail(w, r, p.err, errorAnswer{})
		return
	}
	answer := series{header: w.Header(), tenant: p.tenant, metric: metric, limit: a.opts.MaxAnswer}
	if q.End.Before(q.Start) {
		a.send(w, http.StatusOK, []byte("[]")) // the range contains no multiple of the period
		return
	}
	err := a.evaluator.Evaluate(r.Context(), q, func(found Result) error {
		if err := answer.write(found); err != nil {
			return err
		}
		a.send(w, http.StatusOK, answer.body) // the evaluator counts the response's bytes until it is sent
		return nil
	})
	if err != nil {
		a.fail(w, r, err, errorAnswer{})
	}
}

// parseEvaluation parses the query's parameters.
func (p *params) parseEvaluation(metric string, now time.Time) Evaluation {
	matchers := []*labels.Matcher{equalMatcher(labels.MetricName, metric)}
	for _, tag := range p.values["tag"] {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" || value == "" || key == labels.MetricName {
			p.setError("tag", "must be key=value, such as os=linux")
			continue
		}
		matchers = append(matchers, equalMatcher(key, value))
	}
	if len(matchers) > maxTerms {
		p.setError("tag", fmt.Sprintf("is set more than %d times", maxTerms-1))
	}
	for _, m := range matchers {
		if !utf8.ValidString(m.Name) || !utf8.ValidString(m.Value) {
			p.setError("tag", "and metricName must be valid UTF-8")
		}
	}
	p.required("start")
	start, end := p.parseTime("start", now), p.parseTime("end", now)
	switch {
	case p.err != nil:
	case end.Before(start):
		p.setError("end", "is before start")
	case end.Sub(start) > maxRange:
		p.setError("start", "is more than 100 years after start")
	}
	q := Evaluation{Tenant: p.tenant, Start: start, End: end}
	if aligned := p.parseAlignment(&q, matchers); !aligned && p.err == nil {
		q.Expr = formatSelector(matchers, end.Sub(start).Milliseconds()+1) // the start of a range is exclusive
	}
	return q
}

// parseTime returns a parameter as a time in whole milliseconds. If the parameter is missing, parseTime returns the
// time otherwise.
func (p *params) parseTime(name string, otherwise time.Time) time.Time {
	text := p.optional(name)
	if text == "" {
		return otherwise.Truncate(time.Millisecond)
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t.Truncate(time.Millisecond)
	}
	ms, ok := parseSeconds(text)
	const most = int64(1) << 48 // after the year 10,000
	if !ok || ms > most || ms < -most {
		p.setError(name, errTime)
	}
	return time.UnixMilli(ms)
}

// parseAlignment parses the parameters of alignment and reduction into q. It reports whether the query has an aligner.
func (p *params) parseAlignment(q *Evaluation, matchers []*labels.Matcher) bool {
	aligner, reducer, groupBy := p.optional("aligner"), p.optional("reducer"), p.values["groupBy"]
	period := p.optional("alignmentPeriod")
	if aligner == "" || aligner == alignNone {
		const text = "needs an aligner, which gives all series the same timestamps"
		switch {
		case period != "":
			p.setError("alignmentPeriod", text)
		case len(groupBy) > 0:
			p.setError("groupBy", text)
		case reducer != "" && reducer != reduceNone:
			p.setError("reducer", text)
		}
		return false
	}
	align, ok := aligners[aligner]
	if !ok {
		p.setError("aligner", "must be one of "+operationNames(aligners, alignNone))
	}
	width, err := model.ParseDuration(period)
	if err != nil || width < model.Duration(time.Second) {
		p.setError("alignmentPeriod", "must be a duration of at least 1s, such as 300s or 5m")
		return true
	}
	q.Step = time.Duration(width)
	q.Start, q.End = alignUp(q.Start, q.Step), alignDown(q.End, q.Step)
	if q.End.Sub(q.Start)/q.Step >= maxPoints {
		p.setError("alignmentPeriod",
			fmt.Sprintf("is too short for the time range: a series would have more than %d points", maxPoints))
	}
	q.Expr = align.formatCall(formatSelector(matchers, q.Step.Milliseconds()))
	if reducer == "" || reducer == reduceNone {
		if len(groupBy) > 0 {
			p.setError("groupBy", "needs a reducer")
		}
		return true
	}
	reduce, ok := reducers[reducer]
	if !ok {
		p.setError("reducer", "must be one of "+operationNames(reducers, reduceNone))
	}
	for _, name := range groupBy {
		if name == "" || name == labels.MetricName || !utf8.ValidString(name) {
			p.setError("groupBy", "must be the name of a tag")
		}
	}
	if len(groupBy) > maxTerms {
		p.setError("groupBy", fmt.Sprintf("is set more than %d times", maxTerms))
	}
	q.Expr = reduce.formatAggregate(groupBy, q.Expr)
	return true
}

func operationNames(of map[string]operation, none string) string {
	return strings.Join(append([]string{none}, slices.Sorted(maps.Keys(of))...), ", ")
}

// alignDown and alignUp round to multiples of the period since 1970.
func alignDown(t time.Time, period time.Duration) time.Time {
	ms, width := t.UnixMilli(), period.Milliseconds()
	return time.UnixMilli(ms - (ms%width+width)%width)
}

func alignUp(t time.Time, period time.Duration) time.Time {
	if down := alignDown(t, period); down.Before(t) {
		return down.Add(period)
	}
	return t
}

// series encodes a response series by series.
type series struct {
	header         http.Header
	tenant, metric string
	limit          int
	body           []byte
}

// Response headers of queries: the body, a list of series, has no field for them.
const (
	resolutionHeader = "X-Cassia-Resolution"
	noteHeader       = "X-Cassia-Note"
)

// write encodes the series found. Native histograms are omitted: the format can't express them.
func (s *series) write(answer Result) error {
	if answer.Resolution != "" {
		s.header.Set(resolutionHeader, answer.Resolution)
	}
	for _, note := range answer.Notes {
		s.header.Add(noteHeader, strings.Join(strings.Fields(note), " ")) // a header has one line
	}
	found := answer.Series
	if minResponseSize(found) > s.limit {
		return s.tooLarge()
	}
	labelorder.Sort(found, func(s promengine.Series) labels.Labels { return s.Metric })
	s.body = append(s.body[:0], '[')
	for _, one := range found {
		if len(one.Floats) == 0 {
			continue
		}
		if err := s.append(one); err != nil {
			return err
		}
	}
	s.body = append(s.body, ']')
	return nil
}

func (s *series) append(one promengine.Series) error {
	if len(s.body) > 1 {
		s.body = append(s.body, ',')
	}
	s.body = appendText(append(s.body, `{"tenant":`...), s.tenant)
	s.body = appendText(append(s.body, `,"metricName":`...), s.metric)
	s.body = append(s.body, `,"tags":{`...)
	tags := 0
	one.Metric.Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			return
		}
		if tags++; tags > 1 {
			s.body = append(s.body, ',')
		}
		s.body = appendText(append(appendText(s.body, l.Name), ':'), l.Value)
	})
	s.body = append(s.body, `},"values":{`...)
	for i, f := range one.Floats {
		if i > 0 {
			s.body = append(s.body, ',')
		}
		s.body = append(appendTime(append(s.body, '"'), f.T), `":`...)
		s.body = appendValue(s.body, f.F)
		if len(s.body) > s.limit {
			return s.tooLarge()
		}
	}
	s.body = append(s.body, "}}"...)
	return nil
}

func (s *series) tooLarge() error {
	return fmt.Errorf("%w: the response has more than %d bytes; query a shorter range, fewer series or aligned points",
		ErrUnprocessable, s.limit)
}

// minPointSize is the length in bytes of the shortest time and value.
const minPointSize = len(`"2026-05-01T12:00:00Z":1`)

// minResponseSize returns a lower bound of the response's size in bytes, to reject too large responses before encoding
// them.
func minResponseSize(found []promengine.Series) (n int) {
	for i := range found {
		n += len(found[i].Floats) * minPointSize
		if len(found[i].Floats) > 0 {
			found[i].Metric.Range(func(l labels.Label) {
				if l.Name != labels.MetricName {
					n += len(l.Name) + len(l.Value)
				}
			})
		}
	}
	return n
}

// appendText appends a string as JSON.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, c) >= 0 {
			text, _ := json.Marshal(s) // A string has no error.
			return append(dst, text...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
