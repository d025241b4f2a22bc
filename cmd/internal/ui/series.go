package ui

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Limits on requests.
const (
	usualEntries = 50
	maxEntries   = 1000
	usualWindows = 14
	maxWindows   = 60
)

// namedCount is a name with a count, in a list.
type namedCount struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

func countsOf(list []counts.Count) []namedCount {
	out := make([]namedCount, 0, len(list))
	for _, c := range list {
		out = append(out, namedCount(c))
	}
	return out
}

// seenCount is the count of a metric. If the request sets the parameter seen, First and Last are the start of the first
// and the end of the last raw window with series of the metric.
type seenCount struct {
	namedCount
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// seriesAnswer is the response of the endpoint series.
type seriesAnswer struct {
	Series int64 `json:"series"`
	// AllMetrics and AllLabels are the total numbers of metrics and labels. The lists contain those with the highest
	// counts.
	AllMetrics int          `json:"all_metrics"`
	AllLabels  int          `json:"all_labels"`
	Metrics    []seenCount  `json:"metrics"`
	Labels     []namedCount `json:"labels"`
	// Values contains the values of the requested label, each with its number of series.
	Values []namedCount `json:"values"`
}

// parseNumber parses a parameter between 1 and most.
func parseNumber(r *http.Request, name string, usual, most int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badRequest(fmt.Sprintf("%s must be a number from 1 to %d", name, most))
	}
	return n, nil
}

// onlyTenant returns the tenant of a request that must name exactly one.
func onlyTenant(r *http.Request) (string, error) {
	if names := tenant.NamesFromContext(r.Context()); len(names) != 1 {
		return "", badRequest("the request must name exactly one tenant")
	}
	return tenant.FromContext(r.Context()), nil
}

func (a *api) series(r *http.Request) (any, error) {
	q := counts.SeriesQuery{Metric: r.FormValue("metric"), Label: r.FormValue("label"),
		Unsealed: r.FormValue("window") == ""}
	var err error
	if q.Tenant, err = onlyTenant(r); err != nil {
		return nil, err
	}
	if q.Limit, err = parseNumber(r, "limit", usualEntries, maxEntries); err != nil {
		return nil, err
	}
	if !q.Unsealed {
		if q.Window, err = strconv.ParseInt(r.FormValue("window"), 10, 64); err != nil {
			return nil, badRequest("window must be the integer ID of a window, as listed by " + Prefix + "churn")
		}
	}
	leave, err := a.waitToCount(r.Context())
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := a.Store.CountSeries(r.Context(), q)
	if err != nil {
		return nil, err
	}
	out := seriesAnswer{
		Series: found.Series, AllMetrics: found.AllMetrics, AllLabels: found.AllLabels,
		Metrics: make([]seenCount, len(found.Metrics)), Labels: countsOf(found.Labels), Values: countsOf(found.Values),
	}
	for i, c := range found.Metrics {
		out.Metrics[i].namedCount = namedCount(c)
	}
	if r.FormValue("seen") == "true" {
		err = a.addSeen(r.Context(), q.Tenant, out.Metrics)
	}
	return out, err
}

// addSeen sets First and Last of each metric from its sealed raw windows.
func (a *api) addSeen(ctx context.Context, name string, metrics []seenCount) error {
	names := make([]string, len(metrics))
	for i := range metrics {
		names[i] = metrics[i].Name
	}
	seen, err := a.Store.MetricsSeen(ctx, name, names)
	for i := range metrics {
		metrics[i].First, metrics[i].Last = seen[names[i]].First, seen[names[i]].Last
	}
	return err
}

// churnAnswer is the response of the endpoint churn.
type churnAnswer struct {
	// Unsealed is the number of series with unsealed samples.
	Unsealed int           `json:"unsealed"`
	Windows  []churnWindow `json:"windows"`
	// Cut is set if older windows were omitted because they have too many series.
	Cut bool `json:"cut"`
}

type churnWindow struct {
	Window  int64     `json:"window"`
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Metrics int       `json:"metrics"`
	Series  int       `json:"series"`
	// Added is the number of series that aren't in the previous window. Gone is the number of series that are only in
	// the previous window. -1 means unknown.
	Added int `json:"added"`
	Gone  int `json:"gone"`
}

func (a *api) serveChurn(r *http.Request) (any, error) {
	name, err := onlyTenant(r)
	if err != nil {
		return nil, err
	}
	n, err := parseNumber(r, "windows", usualWindows, maxWindows)
	if err != nil {
		return nil, err
	}
	leave, err := a.waitToCount(r.Context())
	if err != nil {
		return nil, err
	}
	defer leave()
	list, cut, err := a.Store.Churn(r.Context(), name, n)
	if err != nil {
		return nil, err
	}
	out := churnAnswer{Unsealed: a.Store.ActiveSeries(name), Windows: []churnWindow{}, Cut: cut}
	for _, w := range list {
		out.Windows = append(out.Windows, churnWindow{w.Window, w.Start, w.End, w.Metrics, w.Series, w.Added, w.Gone})
	}
	return out, nil
}
