package api

import (
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/util/features"
)

// setFeatures sets the features of the API, the receivers, the rules and the store for /features, by their names in
// Prometheus. The evaluator sets its own features.
func setFeatures(o Options) {
	if o.Features == nil {
		return
	}
	for name, on := range map[string]bool{
		"admin": o.AdminAPI, "lifecycle": o.Lifecycle, "remote_write_receiver": true, "otlp_write_receiver": true,
		"search": false, "search_fuzz_alg_jarowinkler": false, "search_fuzz_alg_subsequence": false,
		// Labels and series.
		"label_values_match": true, "time_range_labels": true, "time_range_series": true,
		// Queries.
		"query_stats": true, "query_warnings": true,
		"exclude_alerts": true, "openapi_3.1": true, "openapi_3.2": true,
	} {
		o.Features.Set(features.API, name, on)
	}
	o.Features.Set(features.OTLPReceiver, "delta_conversion", false)
	o.Features.Set(features.OTLPReceiver, "native_delta_ingestion", false)
	o.Features.Set(features.Rules, "concurrent_rule_eval", false)
	o.Features.Enable(features.Rules, "keep_firing_for")
	o.Features.Enable(features.Rules, "query_offset")
	o.Features.Enable(features.TSDB, "exemplar_storage")
	o.Features.Enable(features.TSDB, "native_histograms")
	template.RegisterFeatures(o.Features)
}
