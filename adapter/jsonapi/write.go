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

// Reasons in addition to those of package adapter and storage.LabelError.
const (
	reasonInvalid   = "invalid"
	reasonForbidden = "forbidden_tenant"
	reasonTenants   = "too_many_tenants"
)

// lenient accepts errors of single points when a body is split: parsePoint rejects those points.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

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
		return points, json.Unmarshal(body, &points, lenient)
	})
}

func (a *API) write(w http.ResponseWriter, r *http.Request, split func([]byte) ([]jsontext.Value, error)) {
	if !a.methods(w, r, http.MethodPost) {
		return
	}
	if text := unsupported(r.Header); text != "" {
		a.answer(w, http.StatusUnsupportedMediaType, errorAnswer{Error: text})
		return
	}
	share := a.budget.Share(r.Context())
	defer share.Give()
	// Points may name other tenants, whose limits are unknown before the body is read.
	most, explain := adapter.Bound(a.opts.Limiter, tenant.From(r.Context()), a.opts.MaxBody)
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
	if !jsontext.Value(body).IsValid(lenient) {
		a.fail(w, r, &problem{"body", "isn't valid JSON"}, errorAnswer{})
		return
	}
	// Each element becomes a slice of its own, and a slice header (24 bytes) is larger than the shortest element.
	if err := share.Take(int64(len(body) + 24*bytes.Count(body, []byte{','}))); err != nil {
		a.fail(w, r, err, errorAnswer{})
		return
	}
	points, err := split(body)
	if err != nil {
		a.fail(w, r, err, errorAnswer{})
		return
	}
	a.store(w, r, points)
}

// unsupported returns the error of the body's encoding, "" if it is supported.
func unsupported(header http.Header) string {
	if media, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || media != "application/json" {
		return fmt.Sprintf("content type %.128q isn't supported; send application/json", header.Get("Content-Type"))
	}
	if of := header.Get("Content-Encoding"); of != "" && !strings.EqualFold(of, "identity") {
		return fmt.Sprintf("content encoding %.64q isn't supported; send uncompressed JSON", of)
	}
	return ""
}

// writing is the state of one write request.
type writing struct {
	a       *API
	r       *http.Request
	intakes map[string]*adapter.Intake
	allowed map[string]error // the error of Options.Tenant by the tenant that points name
	names   map[string]string
	taken   int
	// ruled counts the points that rules dropped.
	ruled   int
	errors  []pointError
	refused int
	reasons map[string]int
	// later is an error that a retry of the request may resolve, see adapter.Later.
	later error
}

// store writes the valid points and responds.
func (a *API) store(w http.ResponseWriter, r *http.Request, points []jsontext.Value) {
	x := &writing{
		a: a, r: r, intakes: map[string]*adapter.Intake{}, allowed: map[string]error{}, names: map[string]string{},
		reasons: map[string]int{},
	}
	defer x.release()
	for i, raw := range points {
		if err := x.add(i, raw); err != nil {
			a.fail(w, r, err, x.counts())
			return
		}
	}
	if err := x.commit(); err != nil {
		a.fail(w, r, err, x.counts())
		return
	}
	a.points.WithLabelValues("stored").Add(float64(x.taken))
	a.points.WithLabelValues("dropped").Add(float64(x.ruled))
	for reason, n := range x.reasons {
		a.points.WithLabelValues(reason).Add(float64(n))
	}
	if x.refused == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	body := x.counts()
	body.Error = fmt.Sprintf("%d of %d points rejected", x.refused, len(points))
	code := http.StatusBadRequest
	switch {
	case x.later != nil: // Points that are already stored don't change.
		code = adapter.Status(x.later)
		a.retryAfter(w, code, x.later)
	case x.reasons[reasonForbidden] == x.refused:
		code = http.StatusForbidden
	}
	a.answer(w, code, body)
}

// counts returns the number of durable points and the number of other points.
func (x *writing) counts() errorAnswer {
	written := 0
	for _, in := range x.intakes {
		written += in.Durable()
	}
	refused := x.refused
	return errorAnswer{Written: &written, Refused: &refused, Errors: x.errors}
}

// add adds one point to its tenant's batch, or counts it as rejected. An error fails the request.
func (x *writing) add(index int, raw jsontext.Value) error {
	s, err := parsePoint(raw)
	if err != nil {
		x.refuse(index, reasonInvalid, err)
		return nil
	}
	in, err := x.intake(s.tenant)
	switch {
	case errors.Is(err, ErrForbidden):
		x.refuse(index, reasonForbidden, &problem{"tenant", err.Error()})
		return nil
	case err != nil:
		x.refuse(index, reasonInvalid, err)
		return nil
	case in == nil:
		x.refuse(index, reasonTenants, &problem{
			"tenant", fmt.Sprintf("a request may contain points of at most %d tenants", maxTenants),
		})
		return nil
	}
	err = in.Float(s.labels, s.t, 0, s.v)
	var refused *adapter.Refused
	switch {
	case err == nil:
		x.taken++
	case err == adapter.ErrDropped:
		x.ruled++
	case errors.As(err, &refused):
		x.later = adapter.Later(x.later, refused)
		x.refuse(index, refused.Reason, &problem{fieldOf(refused.Reason), refused.Error()})
	default:
		return err
	}
	return nil
}

// intake returns the intake of the tenant named by a point; nil if the request has too many tenants.
func (x *writing) intake(asked string) (*adapter.Intake, error) {
	if err, known := x.allowed[asked]; known && err != nil {
		return nil, err
	} else if !known {
		if len(x.allowed) >= maxTenants {
			return nil, nil
		}
		x.names[asked], x.allowed[asked] = x.a.tenant(x.r.Context(), "tenant", asked)
		if err := x.allowed[asked]; err != nil {
			return nil, err
		}
	}
	name := x.names[asked]
	if x.intakes[name] == nil {
		x.intakes[name] = adapter.NewIntake(x.r.Context(), name, func(tenant string) adapter.Batch {
			return x.a.opts.Rules.Over(tenant, x.a.db.NewBatch(tenant))
		})
	}
	return x.intakes[name], nil
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

// refuse counts a rejected point and, up to maxErrors, adds its error to the response.
func (x *writing) refuse(index int, reason string, err error) {
	x.refused++
	x.reasons[reason]++
	if len(x.errors) >= maxErrors {
		return
	}
	e := pointError{Index: index, Reason: reason, Message: storage.Plain(err.Error())}
	var wrong *problem
	if errors.As(err, &wrong) {
		e.Field, e.Message = wrong.field, wrong.text
	}
	x.errors = append(x.errors, e)
}

// commit makes the accepted points durable, one tenant at a time.
func (x *writing) commit() error {
	names := make([]string, 0, len(x.intakes))
	for name := range x.intakes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := x.intakes[name].Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (x *writing) release() {
	for _, in := range x.intakes {
		in.Release()
	}
}
