package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	promapi "github.com/prometheus/prometheus/web/api/v1"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Metadata looks up what a tenant's metrics mean: all of them if metric is empty; limit bounds the metrics
// (0: none does).
type Metadata func(ctx context.Context, tenant, metric string, limit int) (map[string][]MetricMetadata, error)

// MetricMetadata is one meaning of a metric.
type MetricMetadata struct {
	// Type is one of Prometheus' types, such as counter.
	Type string `json:"type"`
	Help string `json:"help"`
	Unit string `json:"unit"`
}

// Head is the state of what isn't sealed, of all tenants.
type Head struct {
	Series int64
	Chunks int64
	// MinT and MaxT are the oldest and the newest timestamp, milliseconds.
	MinT, MaxT int64
}

// overrides are the routes that Prometheus' own API would answer with panics, untruths, or words about
// parts that aren't there.
func (a *api) overrides() map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"/metadata":         a.get(a.metadata),
		"/targets/metadata": a.get(func(w http.ResponseWriter, r *http.Request) { a.respond(w, r, []struct{}{}) }),
		"/status/buildinfo": a.get(func(w http.ResponseWriter, r *http.Request) { a.respond(w, r, a.Version.info()) }),
		"/status/config":    a.get(a.config),
		"/status/tsdb":      a.get(a.head),
	}
	if a.Limits != nil {
		routes["/status/limits"] = a.get(a.limits)
	}
	for path, message := range map[string]string{
		"/admin/tsdb/delete_series":    "deleting series isn't supported yet; --retention.raw removes old samples",
		"/admin/tsdb/clean_tombstones": "there are no tombstones to clean",
		"/admin/tsdb/snapshot":         "snapshots aren't supported yet; stop cassia and copy --storage.path",
	} {
		routes[path] = a.method(a.admin(message), http.MethodPost, http.MethodPut)
	}
	for path, message := range map[string]string{
		"/search/":         "the search API isn't supported; use labels, label values and series",
		"/otlp/v1/metrics": "OTLP isn't supported yet; send Prometheus remote write to " + Prefix + "/write",
	} {
		routes[path] = a.unsupported(message)
	}
	return routes
}

func (a *api) metadata(w http.ResponseWriter, r *http.Request) {
	limit, ok := a.number(w, r, "limit", 0)
	if !ok {
		return
	}
	perMetric, ok := a.number(w, r, "limit_per_metric", 0)
	if !ok {
		return
	}
	found := map[string][]MetricMetadata{}
	if a.Metadata != nil {
		var err error
		if found, err = a.metadataOf(r.Context(), r.FormValue("metric"), limit); err != nil {
			code, known := statusOf(0, err)
			if !known {
				code = http.StatusInternalServerError
			}
			a.fail(w, r, code, "internal", err.Error())
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

// metadataOf joins what the metrics of a request's tenants mean.
func (a *api) metadataOf(ctx context.Context, metric string, limit int) (map[string][]MetricMetadata, error) {
	all := map[string][]MetricMetadata{}
	for _, name := range tenant.All(ctx) {
		found, err := a.Metadata(tenant.Into(ctx, name), name, metric, limit)
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

// number reads a parameter; negative numbers count as absent, as in Prometheus.
func (a *api) number(w http.ResponseWriter, r *http.Request, name string, absent int) (int, bool) {
	s := r.FormValue(name)
	if s == "" {
		return absent, true
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		a.fail(w, r, http.StatusBadRequest, "bad_data", name+" must be a number")
		return 0, false
	}
	if n < 0 {
		return absent, true
	}
	return n, true
}

func (a *api) config(w http.ResponseWriter, r *http.Request) {
	a.respond(w, r, map[string]string{
		"yaml": "# Cassia has no configuration file. See " + Prefix + "/status/flags for what it was started with.\n",
	})
}

func (a *api) head(w http.ResponseWriter, r *http.Request) {
	if a.Head == nil {
		a.fail(w, r, http.StatusNotImplemented, "unavailable", "not supported yet; see /metrics")
		return
	}
	head, err := a.Head(r.Context())
	if err != nil {
		a.fail(w, r, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	a.respond(w, r, promapi.TSDBStatus{
		HeadStats: promapi.HeadStats{
			NumSeries: uint64(head.Series), ChunkCount: head.Chunks, MinTime: head.MinT, MaxTime: head.MaxT,
		},
		SeriesCountByMetricName:     []promapi.TSDBStat{},
		LabelValueCountByLabelName:  []promapi.TSDBStat{},
		MemoryInBytesByLabelName:    []promapi.TSDBStat{},
		SeriesCountByLabelValuePair: []promapi.TSDBStat{},
	})
}

func (a *api) admin(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.AdminAPI {
			a.fail(w, r, http.StatusForbidden, "unavailable", "admin APIs disabled; start cassia with --web.enable-admin-api")
			return
		}
		a.fail(w, r, http.StatusNotImplemented, "unavailable", "not supported: "+message)
	}
}

func (a *api) unsupported(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, http.StatusNotImplemented, "unavailable", "not supported: "+message)
	}
}
