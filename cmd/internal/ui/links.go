package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/cmd/internal/server"
)

// maxPanels is the max number of queries in a link that are shown.
const maxPanels = 10

// linkRoutes returns routes that redirect the paths of Prometheus' web pages to the corresponding views. Such paths are
// used by alerts, dashboards and bookmarks.
func linkRoutes() []server.Route {
	row := func(path string, h http.HandlerFunc) server.Route {
		return server.Route{Path: "GET " + path, Name: path, Role: server.Open, Tenant: true, Handler: h}
	}
	return []server.Route{
		row("/graph", redirectGraph), // Prometheus 2, and links in alerts
		row("/query", redirectGraph), // Prometheus 3
		row("/alerts", func(w http.ResponseWriter, r *http.Request) {
			redirectToView(w, r, "alerts", searchParams(r, url.Values{}))
		}),
		row("/rules", func(w http.ResponseWriter, r *http.Request) {
			redirectToView(w, r, "alerts", searchParams(r, url.Values{"show": {"rules"}}))
		}),
	}
}

// redirectToView redirects to a view, and moves the tenant from the path to the view. The redirect is relative, because
// a proxy may serve the page under a path.
func redirectToView(w http.ResponseWriter, r *http.Request, view string, params url.Values) {
	setSecurityHeaders(w.Header())
	to := "./#/" + view
	if name := server.PathTenant(r.Context()); name != "" {
		to = "../../#/" + view
		params.Set("tenant", name)
	}
	if len(params) > 0 {
		to += "?" + params.Encode()
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

// searchParams converts the search parameter of a link.
func searchParams(r *http.Request, to url.Values) url.Values {
	if text := r.URL.Query().Get("search"); text != "" {
		to.Set("find", text)
	}
	return to
}

// redirectGraph converts a link with queries. The display options of its first query apply.
func redirectGraph(w http.ResponseWriter, r *http.Request) {
	asked, to := r.URL.Query(), url.Values{}
	for i := range maxPanels {
		if expr := asked.Get(fmt.Sprintf("g%d.expr", i)); expr != "" {
			to.Add("q", expr)
		}
	}
	panel := func(name string) string { return asked.Get("g0." + name) }
	switch panel("tab") {
	case "1", "table":
		to.Set("tab", "table")
	case "explain":
		to.Set("tab", "explain")
	}
	if panel("stacked") == "1" || panel("display_mode") == "stacked" {
		to.Set("stack", "1")
	}
	if step, err := strconv.ParseFloat(firstOf(panel("step_input"), panel("res_step")), 64); err == nil &&
		step >= 1 && step <= maxStep {
		to.Set("step", strconv.Itoa(int(step))+"s")
	}
	rangeOf(to, panel("range_input"), firstOf(panel("end_input"), panel("moment_input")))
	redirectToView(w, r, "explore", to)
}

// maxStep is the max step of a query in seconds.
const maxStep = 366 * 24 * 3600

// rangeOf sets the time range to the given width and end. Both may be empty. Times are in UTC, as in Prometheus.
func rangeOf(to url.Values, width, end string) {
	long, err := model.ParseDuration(width)
	if err != nil || long <= 0 {
		width, long = "", 0
	}
	at, err := momentOf(end)
	switch {
	case err != nil && width != "":
		to.Set("from", "now-"+strings.ReplaceAll(width, " ", ""))
	case err == nil:
		if long == 0 {
			long = model.Duration(time.Hour)
		}
		to.Set("from", at.Add(-time.Duration(long)).Format(time.RFC3339))
		to.Set("to", at.Format(time.RFC3339))
	}
}

func momentOf(text string) (at time.Time, err error) {
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if at, err = time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return at, err
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
