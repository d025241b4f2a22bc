package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/cassia-db/cassia/storage/tenant"
)

// MetadataFunc returns the metadata of a tenant's metric, or of all its metrics if metric is empty. limit is the
// maximum number of metrics (0: no limit).
type MetadataFunc func(ctx context.Context, tenant, metric string, limit int) (map[string][]MetricMetadata, error)

// MetricMetadata is one entry of the metadata of a metric. A metric may have multiple entries.
type MetricMetadata struct {
	// Type is one of Prometheus' types, such as counter.
	Type string `json:"type"`
	Help string `json:"help"`
	Unit string `json:"unit"`
}

// overriddenRoutes returns the handlers that replace Prometheus' handlers, by the names of the routes in Prometheus'
// API. If they weren't replaced, Prometheus' handlers would panic, return wrong data, or describe parts that don't
// exist.
func (a *api) overriddenRoutes() map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"/format_query":     a.formatQuery,
		"/metadata":         a.withPlace("/metadata", a.serveMetadata),
		"/status/buildinfo": func(w http.ResponseWriter, r *http.Request) { a.respond(w, r, a.Version.info()) },
		"/status/config":    a.serveConfig,
		"/status/tsdb":      a.serveTSDB,
	}
	if a.Limits != nil {
		routes["/status/limits"] = a.serveLimits
	}
	a.adminRoutes(routes)
	for path, message := range map[string]string{
		"/search/metric_names": noSearch, "/search/label_names": noSearch, "/search/label_values": noSearch,
		"/otlp/v1/metrics": "OTLP; use Prometheus remote write at " + Prefix + "/write",
	} {
		routes[path] = a.unsupportedHandler(message)
	}
	return routes
}

const noSearch = "Prometheus' search API; use the endpoints for labels, label values and series"

func (a *api) serveMetadata(w http.ResponseWriter, r *http.Request) {
	limit, ok := a.parseNumber(w, r, "limit")
	if !ok {
		return
	}
	perMetric, ok := a.parseNumber(w, r, "limit_per_metric")
	if !ok {
		return
	}
	found := map[string][]MetricMetadata{}
	if a.Metadata != nil && limit != 0 {
		var err error
		if found, err = a.mergeMetadata(r.Context(), r.FormValue("metric"), max(0, limit)); err != nil {
			a.failWith(w, r, err)
			return
		}
	}
	for name, all := range found {
		if perMetric > 0 && len(all) > perMetric {
			found[name] = all[:perMetric]
		}
	}
	a.respond(w, r, found)
}

// mergeMetadata joins the metadata of the metrics of a request's tenants.
func (a *api) mergeMetadata(ctx context.Context, metric string, limit int) (map[string][]MetricMetadata, error) {
	all := map[string][]MetricMetadata{}
	for _, name := range tenant.NamesFromContext(ctx) {
		found, err := a.Metadata(tenant.NewContext(ctx, name), name, metric, limit)
		if err != nil {
			return nil, err
		}
		for name, meanings := range found {
			if limit > 0 && len(all) >= limit && all[name] == nil {
				continue
			}
			for _, m := range meanings {
				if !slices.Contains(all[name], m) {
					all[name] = append(all[name], m)
				}
			}
		}
	}
	return all, nil
}

// parseNumber returns the value of a parameter, or -1 if the parameter is absent. Prometheus also treats negative
// numbers as absent. If the parameter is invalid, parseNumber writes an error to w and returns false.
func (a *api) parseNumber(w http.ResponseWriter, r *http.Request, name string) (int, bool) {
	s := r.FormValue(name)
	if s == "" {
		return -1, true
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		a.fail(w, r, http.StatusBadRequest, "bad_data", name+" must be a number")
		return 0, false
	}
	return n, true
}

func (a *api) serveConfig(w http.ResponseWriter, r *http.Request) {
	a.respond(w, r, map[string]string{
		"yaml": "# Cassia has no configuration file. " + Prefix + "/status/flags lists the flags.\n",
	})
}

func (a *api) unsupportedHandler(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, http.StatusNotImplemented, "unavailable", "not supported: "+message)
	}
}
