package jsonapi

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// maxErrors bounds the errors in a response, and maxTenants the tenants of one request.
const (
	maxErrors  = 100
	maxTenants = 100
)

// pointError is the error of one point.
type pointError struct {
	// Index is the index of the point in the array.
	Index int `json:"index"`
	// Field is the name of the wrong field, "" if the error isn't specific to a field.
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Reasons to reject points. Package adapter and storage.LabelError have further reasons.
const (
	reasonInvalid   = "invalid"
	reasonForbidden = "forbidden_tenant"
	reasonTenants   = "too_many_tenants"
)

// lenientOptions tolerate duplicate names and invalid UTF-8 while a body is split into points. parsePoint then rejects
// only the points that contain them.
var lenientOptions = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// WriteSingle handles POST /api/write/single.
func (a *API) WriteSingle(w http.ResponseWriter, r *http.Request) {
	a.write(w, r, func(body []byte) ([]jsontext.Value, error) {
		if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
			return nil, &problem{"body", "must be one point (an object); use /api/write for an array of points"}
		}
		return []jsontext.Value{body}, nil
	})
}

// Write handles POST /api/write.
func (a *API) Write(w http.ResponseWriter, r *http.Request) {
	a.write(w, r, func(body []byte) (points []jsontext.Value, err error) {
		if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
			return nil, &problem{"body", "must be an array of points; use /api/write/single for one point"}
		}
		return points, json.Unmarshal(body, &points, lenientOptions)
	})
}

func (a *API) write(w http.ResponseWriter, r *http.Request, split func([]byte) ([]jsontext.Value, error)) {
	if !a.allowsMethod(w, r, http.MethodPost) {
		return
	}
	if text := unsupportedEncoding(r.Header); text != "" {
		a.answer(w, http.StatusUnsupportedMediaType, errorAnswer{Error: text})
		return
	}
	share := a.budget.NewShare(r.Context())
	defer share.Release()
	// Points may name other tenants, whose limits are unknown before the body is read.
	most, explain := adapter.BodyLimit(a.opts.Limiter, tenant.FromContext(r.Context()), a.opts.MaxBody)
	body, err := adapter.ReadAll(r.Body, most, r.ContentLength, &share)
	if err != nil {
		if !errors.Is(err, adapter.ErrTooLarge) && !errors.Is(err, adapter.ErrBusy) {
			a.answer(w, http.StatusServiceUnavailable, errorAnswer{Error: "jsonapi: reading the body: " + err.Error()})
			return
		}
		a.fail(w, r, explain(err), errorAnswer{})
		return
	}
	// If the body isn't valid JSON up to its end, nothing is written.
	if !jsontext.Value(body).IsValid(lenientOptions) {
		a.fail(w, r, &problem{"body", "isn't valid JSON"}, errorAnswer{})
		return
	}
	// Each element becomes a slice of its own, and a slice header (24 bytes) is larger than the shortest element.
	if err := share.Claim(int64(len(body) + 24*bytes.Count(body, []byte{','}))); err != nil {
		a.fail(w, r, err, errorAnswer{})
		return
	}
	points, err := split(body)
	if err != nil {
		a.fail(w, r, err, errorAnswer{})
		return
	}
	a.storePoints(w, r, points)
}

// unsupportedEncoding returns the error of the body's encoding, "" if it is supported.
func unsupportedEncoding(header http.Header) string {
	if media, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || media != "application/json" {
		return fmt.Sprintf("content type %.128q isn't supported; send application/json", header.Get("Content-Type"))
	}
	if of := header.Get("Content-Encoding"); of != "" && !strings.EqualFold(of, "identity") {
		return fmt.Sprintf("content encoding %.64q isn't supported; send uncompressed JSON", of)
	}
	return ""
}

// pointWriter is the state of one write request.
type pointWriter struct {
	a        *API
	r        *http.Request
	intakes  map[string]*adapter.Intake
	allowed  map[string]error // the error of Options.Tenant by the tenant that points name
	names    map[string]string
	accepted int
	// droppedByRules counts the points that rules dropped.
	droppedByRules int
	errors         []pointError
	rejected       int
	reasons        map[string]int
	// later is an error that a retry of the request may resolve, see adapter.CombineErrors.
	later error
}

// storePoints writes the valid points and responds.
func (a *API) storePoints(w http.ResponseWriter, r *http.Request, points []jsontext.Value) {
	x := &pointWriter{
		a: a, r: r, intakes: map[string]*adapter.Intake{}, allowed: map[string]error{}, names: map[string]string{},
		reasons: map[string]int{},
	}
	defer x.release()
	for i, raw := range points {
		if err := x.addPoint(i, raw); err != nil {
			a.fail(w, r, err, x.counts())
			return
		}
	}
	if err := x.commit(); err != nil {
		a.fail(w, r, err, x.counts())
		return
	}
	a.points.WithLabelValues("stored").Add(float64(x.accepted))
	a.points.WithLabelValues("dropped").Add(float64(x.droppedByRules))
	for reason, n := range x.reasons {
		a.points.WithLabelValues(reason).Add(float64(n))
	}
	if x.rejected == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	body := x.counts()
	body.Error = fmt.Sprintf("%d of %d points rejected", x.rejected, len(points))
	code := http.StatusBadRequest
	switch {
	case x.later != nil: // Points that are already stored don't change.
		code = adapter.HTTPStatus(x.later)
		a.setRetryAfter(w, code, x.later)
	case x.reasons[reasonForbidden] == x.rejected:
		code = http.StatusForbidden
	}
	a.answer(w, code, body)
}

// counts returns the number of durable points and the number of other points.
func (p *pointWriter) counts() errorAnswer {
	written := 0
	for _, in := range p.intakes {
		written += in.DurableSamples()
	}
	rejected := p.rejected
	return errorAnswer{Written: &written, Refused: &rejected, Errors: p.errors}
}

// addPoint adds one point to its tenant's batch, or counts it as rejected. An error fails the request.
func (p *pointWriter) addPoint(index int, raw jsontext.Value) error {
	s, err := parsePoint(raw)
	if err != nil {
		p.rejectPoint(index, reasonInvalid, err)
		return nil
	}
	in, err := p.intakeOf(s.tenant)
	switch {
	case errors.Is(err, ErrForbidden):
		p.rejectPoint(index, reasonForbidden, &problem{"tenant", err.Error()})
		return nil
	case err != nil:
		p.rejectPoint(index, reasonInvalid, err)
		return nil
	case in == nil:
		p.rejectPoint(index, reasonTenants, &problem{
			"tenant", fmt.Sprintf("a request may contain points of at most %d tenants", maxTenants),
		})
		return nil
	}
	err = in.Float(s.labels, s.t, 0, s.v)
	var rejected *adapter.RejectedError
	switch {
	case err == nil:
		p.accepted++
	case err == adapter.ErrDropped:
		p.droppedByRules++
	case errors.As(err, &rejected):
		p.later = adapter.CombineErrors(p.later, rejected)
		p.rejectPoint(index, rejected.Reason, &problem{fieldOf(rejected.Reason), rejected.Error()})
	default:
		return err
	}
	return nil
}

// intakeOf returns the intake of the tenant named by a point; nil if the request has too many tenants.
func (p *pointWriter) intakeOf(asked string) (*adapter.Intake, error) {
	if err, known := p.allowed[asked]; known && err != nil {
		return nil, err
	} else if !known {
		if len(p.allowed) >= maxTenants {
			return nil, nil
		}
		p.names[asked], p.allowed[asked] = p.a.tenant(p.r.Context(), "tenant", asked)
		if err := p.allowed[asked]; err != nil {
			return nil, err
		}
	}
	name := p.names[asked]
	if p.intakes[name] == nil {
		p.intakes[name] = adapter.NewIntake(p.r.Context(), name, func(tenant string) adapter.Batch {
			return p.a.opts.Rules.WrapBatch(tenant, p.a.db.NewBatch(tenant))
		})
	}
	return p.intakes[name], nil
}

// fieldOf returns the field of the point that a rejection reason refers to, or "" if there is none.
func fieldOf(reason string) string {
	switch reason {
	case adapter.ReasonTooOld, adapter.ReasonTooFarAhead, adapter.ReasonMaybeAhead, adapter.ReasonDroppedAhead:
		return "ts"
	case adapter.ReasonTooManySeries:
		return ""
	}
	return "tags"
}

// rejectPoint counts a rejected point and, up to maxErrors, adds its error to the response.
func (p *pointWriter) rejectPoint(index int, reason string, err error) {
	p.rejected++
	p.reasons[reason]++
	if len(p.errors) >= maxErrors {
		return
	}
	e := pointError{Index: index, Reason: reason, Message: storage.PlainText(err.Error())}
	var wrong *problem
	if errors.As(err, &wrong) {
		e.Field, e.Message = wrong.field, wrong.text
	}
	p.errors = append(p.errors, e)
}

// commit makes the accepted points durable, one tenant at a time.
func (p *pointWriter) commit() error {
	names := make([]string, 0, len(p.intakes))
	for name := range p.intakes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := p.intakes[name].Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pointWriter) release() {
	for _, in := range p.intakes {
		in.Release()
	}
}
