package api

import "github.com/prometheus/prometheus/util/features"

// describe sets, by Prometheus' names, the features of the API, for /features.
func describe(o Options) {
	if o.Features == nil {
		return
	}
	for name, on := range map[string]bool{
		"admin": o.AdminAPI, "lifecycle": o.Lifecycle, "remote_write_receiver": true, "search": false,
		// Of labels and series.
		"label_values_match": true, "time_range_labels": true, "time_range_series": true,
		// Of queries.
		"query_stats": true, "query_warnings": true,
		"exclude_alerts": true, "openapi_3.1": true, "openapi_3.2": true,
	} {
		o.Features.Set(features.API, name, on)
	}
}
