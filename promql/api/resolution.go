package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/cassia-db/cassia/promql"
)

// ResolutionHeader lists the resolutions that answered a query: raw, 5m, 1h. A resolution is followed by snapped or
// widened if windows were moved or made longer.
const ResolutionHeader = "X-Cassia-Resolution"

// queryRoutes are the routes whose queries have a parameter for the resolution.
var queryRoutes = map[string]bool{"/query": true, "/query_range": true}

// withResolution returns a handler that parses the parameters resolution (raw, 5m, 1h, exact, auto) and
// max_source_resolution (as in Thanos: a duration, or auto). It lists in ResolutionHeader which resolutions were read.
func (a *api) withResolution(name string, h http.HandlerFunc) http.HandlerFunc {
	if !queryRoutes[name] {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		coarsest, err := durationMS(r.FormValue("max_source_resolution"))
		if err != nil {
			a.fail(w, r, http.StatusBadRequest, "bad_data", `invalid parameter "max_source_resolution": `+err.Error())
			return
		}
		ctx, err := promql.WithResolution(r.Context(), r.FormValue("resolution"), coarsest)
		if err != nil {
			a.fail(w, r, http.StatusBadRequest, "bad_data", `invalid parameter "resolution": `+err.Error())
			return
		}
		report := &promql.Report{}
		ctx = context.WithValue(report.Into(ctx), resolutionReportKey{}, report)
		h(&resolutionWriter{ResponseWriter: w, report: report}, r.WithContext(ctx))
		a.countAnswer(report)
	}
}

// withRollupNames returns a handler that parses the parameter rollups. If the parameter is true, lists of metric names
// include the names of rollups, such as foo_max.
func (a *api) withRollupNames(name string, h http.HandlerFunc) http.HandlerFunc {
	if name != "/label/:name/values" {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		switch value := r.FormValue("rollups"); value {
		case "", "false":
		case "true":
			r = r.WithContext(promql.WithRollupNames(r.Context()))
		default:
			a.fail(w, r, http.StatusBadRequest, "bad_data", `invalid parameter "rollups": must be true or false`)
			return
		}
		h(w, r)
	}
}

// durationMS parses a duration, with a unit or in seconds, and returns it in milliseconds. It returns 0 for an empty
// text and for durations that exclude no resolution. It returns 1 for a duration of 0, which allows only raw samples.
func durationMS(text string) (int64, error) {
	if text == "" || text == "auto" {
		return 0, nil
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if !(seconds >= 0 && seconds < math.MaxInt64/1e9) {
			return 0, fmt.Errorf("%q isn't a duration", text)
		}
		return max(1, int64(seconds*1000)), nil
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, err
	}
	return max(1, int64(d)/1e6), nil
}

type resolutionReportKey struct{}

// resolutionWriter sets ResolutionHeader when the answer starts. The query has been executed by then.
type resolutionWriter struct {
	http.ResponseWriter
	report *promql.Report
	begun  bool
}

func (w *resolutionWriter) WriteHeader(code int) {
	w.setHeaders()
	w.ResponseWriter.WriteHeader(code)
}

func (w *resolutionWriter) Write(b []byte) (int, error) {
	w.setHeaders()
	return w.ResponseWriter.Write(b)
}

func (w *resolutionWriter) setHeaders() {
	if w.begun {
		return
	}
	w.begun = true
	if resolution := w.report.Resolution(); resolution != "" {
		w.Header().Set(ResolutionHeader, resolution)
	}
}

// Unwrap is used by http.ResponseController.
func (w *resolutionWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// queryStats holds Prometheus' statistics of a query, and the statistics of its fragments.
type queryStats struct {
	stats.BuiltinStats
	// Fragments has a JSON name that clients depend on.
	Fragments []promql.FragmentStats `json:"parts,omitempty"`
}

// Builtin implements stats.QueryStats.
func (s *queryStats) Builtin() stats.BuiltinStats { return s.BuiltinStats }

// renderStats returns the statistics of a query. If param is all, they include the fragments.
func renderStats(ctx context.Context, s *stats.Statistics, param string) stats.QueryStats {
	if param == "" {
		return nil
	}
	builtin := stats.NewQueryStats(s)
	report, ok := ctx.Value(resolutionReportKey{}).(*promql.Report)
	if !ok || param != "all" {
		return builtin
	}
	return &queryStats{BuiltinStats: builtin.Builtin(), Fragments: report.Fragments()}
}
