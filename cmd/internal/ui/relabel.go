package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/storage/inspect"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Limits on a trial request.
const (
	maxTrialBody   = 256 << 10
	maxTrialRange  = 7 * 24 * time.Hour
	usualTrial     = time.Hour
	maxTrialSeries = 200_000
	trialTime      = 20 * time.Second
)

// Relabeling provides the relabeling rules that the page shows and tests.
type Relabeling interface {
	// Status returns the rules in effect for a tenant.
	Status(tenant string) relabeling.Status
	// Try computes the effect that rules would have had on stored series.
	Try(context.Context, *relabeling.Table, relabeling.TrialOptions) (*relabeling.Trial, error)
	// Space returns the size of a tenant's sealed data in bytes.
	Space(ctx context.Context, tenant string) ([rollup.OneHour + 1]relabeling.ResolutionSpace, error)
}

// serveRelabel returns the rules for the tenant's incoming series, and the number of dropped samples.
func (a *api) serveRelabel(r *http.Request) (any, error) {
	name, err := onlyTenant(r)
	if err != nil {
		return nil, err
	}
	return a.Relabeling.Status(name), nil
}

// trialRequest is a request for the effect of rules and retentions.
type trialRequest struct {
	// Rules is the text of a file for --write.relabel-file. It may be empty.
	Rules string `json:"rules"`
	// RangeSeconds is the length of the time range, which ends now; 0: an hour. Start and End, in RFC 3339, set the
	// range explicitly.
	RangeSeconds float64   `json:"range_seconds"`
	Start        time.Time `json:"start"`
	End          time.Time `json:"end"`
	// Retention contains retentions in seconds, by resolution: raw, 5m and 1h; 0: forever. Omitted resolutions keep
	// their current retention.
	Retention map[string]float64 `json:"retention"`
}

type trialAnswer struct {
	Rules     *relabeling.Trial `json:"rules"`
	Retention []retentionTrial  `json:"retention"`
}

// retentionTrial is the effect of a new retention on one resolution.
type retentionTrial struct {
	Resolution string `json:"resolution"`
	// Now and Then are the current and the new retention in seconds; 0: forever.
	Now  float64 `json:"now"`
	Then float64 `json:"then"`
	// DayBytes is the size of a day's data; 0: unknown.
	DayBytes float64 `json:"day_bytes"`
	// BytesNow is the stored size of the windows whose size is known.
	BytesNow int64 `json:"bytes_now"`
	// Windows is the number of whole windows that would expire immediately, and Bytes is their size. ExpiredWindows and
	// ExpiredBytes count windows that have already expired but still use space.
	Windows        int   `json:"windows"`
	Bytes          int64 `json:"bytes"`
	ExpiredWindows int   `json:"expired_windows"`
	ExpiredBytes   int64 `json:"expired_bytes"`
	// BytesAtRest is the size that the data will have once its age reaches Then, at the current rate; -1: it grows
	// forever.
	BytesAtRest float64 `json:"bytes_at_rest"`
}

// relabelTry returns the effect of rules and retentions on the tenant's stored data. Requests are handled one at a
// time.
func (a *api) relabelTry(r *http.Request) (any, error) {
	name, err := onlyTenant(r)
	if err != nil {
		return nil, err
	}
	q, o, err := parseTrial(r, name)
	if err != nil {
		return nil, err
	}
	leave, err := a.waitToCount(r.Context())
	if err != nil {
		return nil, err
	}
	defer leave()
	table, err := relabeling.Parse([]byte(q.Rules))
	if err != nil {
		return nil, badRequest(err.Error())
	}
	answer, kept := trialAnswer{Retention: []retentionTrial{}}, 1.0
	if q.Rules != "" {
		o.Until = time.Now().Add(trialTime)
		answer.Rules, err = a.Relabeling.Try(r.Context(), table, o)
		switch {
		case errors.Is(err, relabeling.ErrNoRules):
			return nil, badRequest(fmt.Sprintf("no rules apply to tenant %s", name))
		case err != nil:
			return nil, err
		}
		if all := answer.Rules.All.DayBytes; all > 0 {
			kept = 1 - (answer.Rules.Dropped.DayBytes+answer.Rules.Refused.DayBytes)/all
		}
	}
	if q.Retention != nil {
		answer.Retention, err = a.tryRetention(r.Context(), name, q.Retention, kept)
	}
	return answer, err
}

func parseTrial(r *http.Request, tenant string) (q trialRequest, o relabeling.TrialOptions, err error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxTrialBody+1))
	if err != nil {
		return q, o, badRequest("reading the request body: " + err.Error())
	}
	if len(text) > maxTrialBody {
		return q, o, badRequest(fmt.Sprintf("the request body is larger than %d bytes", maxTrialBody))
	}
	if err := json.Unmarshal(text, &q); err != nil {
		return q, o, badRequest("the request body must be JSON: " + err.Error())
	}
	end, width := time.Now(), usualTrial
	if q.RangeSeconds != 0 {
		if q.RangeSeconds < 0 || q.RangeSeconds > maxTrialRange.Seconds() {
			return q, o, badRequest(fmt.Sprintf("range_seconds must be between 0 and %v", maxTrialRange.Seconds()))
		}
		width = time.Duration(q.RangeSeconds * float64(time.Second))
	}
	if !q.End.IsZero() {
		end = q.End
	}
	start := end.Add(-width)
	if !q.Start.IsZero() {
		start = q.Start
	}
	if !start.Before(end) || end.Sub(start) > maxTrialRange {
		return q, o, badRequest(fmt.Sprintf("start must be before end, by at most %d days",
			maxTrialRange/(24*time.Hour)))
	}
	for res, seconds := range q.Retention {
		if !(seconds >= 0 && seconds < 1e11) || res != rollup.Raw.String() && res != rollup.FiveMinutes.String() &&
			res != rollup.OneHour.String() {
			return q, o, badRequest("retention must map the resolutions raw, 5m and 1h to seconds")
		}
	}
	return q, relabeling.TrialOptions{Tenant: tenant, MinT: start.UnixMilli(), MaxT: end.UnixMilli(),
		MaxSeries: maxTrialSeries}, nil
}

// tryRetention estimates the future size of each resolution. kept is the share of samples that the rules keep.
func (a *api) tryRetention(ctx context.Context, tenant string, then map[string]float64,
	kept float64) ([]retentionTrial, error) {
	space, err := a.Relabeling.Space(ctx, tenant)
	if err != nil {
		return nil, err
	}
	usual, _ := a.Store.RetentionOf(tenant)
	now, list := retentionsOf(usual), []retentionTrial{}
	for i, of := range space {
		res := rollup.Resolution(i)
		t := retentionTrial{Resolution: res.String(),
			Now: map[rollup.Resolution]float64{rollup.Raw: now.Raw, rollup.FiveMinutes: now.R5m,
				rollup.OneHour: now.R1h}[res], DayBytes: of.DayBytes}
		var given bool
		if t.Then, given = then[res.String()]; !given {
			t.Then = t.Now
		}
		hidden, at := time.Time{}, time.Now()
		if t.Then > 0 {
			hidden = at.Add(-time.Duration(t.Then * float64(time.Second)))
			t.BytesAtRest = of.DayBytes * kept * t.Then / (24 * time.Hour).Seconds()
		} else if of.DayBytes > 0 {
			t.BytesAtRest = -1
		}
		for _, w := range of.Windows {
			t.addWindow(w, hidden, at)
		}
		list = append(list, t)
	}
	return list, nil
}

// addWindow adds a window to the trial. The window would expire immediately if it ends before hidden.
func (t *retentionTrial) addWindow(w inspect.SurveyedWindow, hidden, now time.Time) {
	bytes := max(0, w.Bytes)
	t.BytesNow += bytes
	if !w.Hidden.IsZero() && !w.Hidden.After(now) {
		t.ExpiredWindows++
		t.ExpiredBytes += bytes
		return
	}
	if !hidden.IsZero() && !w.End.After(hidden) {
		t.Windows++
		t.Bytes += bytes
	}
}
