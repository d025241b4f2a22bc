package main

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// query is one panel of a dashboard.
type query struct {
	text string
	// start equals end for an instant query.
	start, end time.Time
	step       time.Duration
}

func (q query) ask(ctx context.Context, api promrig.API) (promrig.Answer, error) {
	if q.step == 0 {
		return api.Query(ctx, q.text, q.end)
	}
	return api.QueryRange(ctx, q.text, q.start, q.end, q.step)
}

// when describes the time range of a query.
func (q query) when() string {
	if q.step == 0 {
		return "instant"
	}
	return short(q.end.Sub(q.start)) + " / " + short(q.step)
}

// queries are ten panels over the load, as node and request dashboards have them.
func queries(w bench.Workload) []query {
	end := time.UnixMilli(w.End()).Truncate(time.Minute)
	all := min(6*time.Hour, end.Sub(time.UnixMilli(w.StartMs)))
	last := func(text string, ago, step time.Duration) query {
		return query{text, end.Add(-min(ago, all)), end, step}
	}
	one := `instance="node-00000-0.example.net:9100"`
	return []query{
		last(`sum by (instance) (rate(node_cpu_seconds_total{mode!="idle"}[5m]))`, 6*time.Hour, time.Minute),
		last(`sum by (mode) (rate(node_cpu_seconds_total[5m]))`, time.Hour, 15*time.Second),
		last(`topk(5, sum by (instance) (rate(node_network_receive_bytes_total[5m])))`, 3*time.Hour, time.Minute),
		last(`histogram_quantile(0.99, sum by (le, handler) (rate(http_request_duration_seconds_bucket[5m])))`, 3*time.Hour, time.Minute),
		last(`sum by (code) (rate(http_requests_total[1m]))`, time.Hour, 15*time.Second),
		last(`100 * node_filesystem_avail_bytes / node_filesystem_size_bytes`, 6*time.Hour, time.Minute),
		last(`max_over_time(node_load1[1h])`, 6*time.Hour, time.Minute),
		last(`node_cpu_seconds_total{cpu="0",mode="user",`+one+`}`, 6*time.Hour, 15*time.Second),
		last(`sum by (instance) (node_filesystem_avail_bytes)`, 0, 0),
		last(`quantile(0.9, rate(node_disk_read_bytes_total[5m]))`, 0, 0),
	}
}
