package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// query is a query of a user or a dashboard.
type query struct {
	text     string
	endpoint endpoint
	// start and end are the time range. For an instant query, only end is set.
	start, end time.Time
	step       time.Duration
}

// endpoint is the endpoint of a query.
type endpoint uint8

const (
	overRange endpoint = iota
	instant
	// listSeries returns the series that match a selector, and listNames the names of their metrics.
	listSeries
	listNames
)

func (q query) ask(ctx context.Context, api promrig.API) (promrig.Answer, error) {
	switch q.endpoint {
	case instant:
		return api.Query(ctx, q.text, q.end)
	case listSeries:
		return api.SeriesOf(ctx, q.text, q.start, q.end)
	case listNames:
		return api.Names(ctx, "__name__", q.text, q.start, q.end)
	default:
		return api.QueryRange(ctx, q.text, q.start, q.end, q.step)
	}
}

func (q query) when() string {
	span := short(q.end.Sub(q.start))
	switch q.endpoint {
	case instant:
		return "instant"
	case listSeries:
		return "series of " + span
	case listNames:
		return "names of " + span
	default:
		return span + " / " + short(q.step)
	}
}

// queries returns queries of dashboards about nodes and requests, and lookups of an interactive user. If the load
// extends over days, it also returns dashboard queries over the whole time.
func queries(g *bench.Generator) []query {
	w := g.Workload
	end := time.UnixMilli(w.End()).Truncate(time.Minute)
	all := end.Sub(time.UnixMilli(w.StartMs)).Truncate(time.Minute)
	one := fmt.Sprintf("instance=%q", g.Labels(0, w.Steps-1).Get("instance"))
	asker := asker{end, min(6*time.Hour, all), short(4 * w.Interval()), one}
	out := append(asker.panels(), asker.lookups()...)
	if all >= 4*24*time.Hour {
		asker.all = all.Truncate(24*time.Hour) - 48*time.Hour
		out = append(out, asker.long()...)
	}
	return out
}

// asker builds queries that end at the time end and cover at most the duration all.
type asker struct {
	end time.Time
	all time.Duration
	// window is the shortest range over which a rate can be computed. one matches the series of one target that exists
	// at the end.
	window, one string
}

func (a asker) last(text string, ago, step time.Duration) query {
	return query{text, overRange, a.end.Add(-min(ago, a.all)), a.end, step}
}

func (a asker) now(text string) query { return query{text: text, endpoint: instant, end: a.end} }

func (a asker) list(endpoint endpoint, text string) query {
	return query{text: text, endpoint: endpoint, start: a.end.Add(-min(time.Hour, a.all)), end: a.end}
}

func (a asker) panels() []query {
	return []query{
		a.last(`sum by (instance) (rate(node_cpu_seconds_total{mode!="idle"}[5m]))`, 6*time.Hour, time.Minute),
		a.last(`sum by (mode) (rate(node_cpu_seconds_total[5m]))`, time.Hour, 15*time.Second),
		a.last(`topk(5, sum by (instance) (rate(node_network_receive_bytes_total[5m])))`, 3*time.Hour, time.Minute),
		a.last(`histogram_quantile(0.99, sum by (le, handler) (rate(http_request_duration_seconds_bucket[5m])))`,
			3*time.Hour, time.Minute),
		a.last(`sum by (code) (rate(http_requests_total[`+a.window+`]))`, time.Hour, 15*time.Second),
		a.last(`100 * node_filesystem_avail_bytes / node_filesystem_size_bytes`, 6*time.Hour, time.Minute),
		a.last(`max_over_time(node_load1[1h])`, 6*time.Hour, time.Minute),
		a.last(`node_cpu_seconds_total{cpu="0",mode="user",`+a.one+`}`, 6*time.Hour, 15*time.Second),
		a.now(`sum by (instance) (node_filesystem_avail_bytes)`),
		a.now(`quantile(0.9, rate(node_disk_read_bytes_total[5m]))`),
	}
}

// lookups returns queries with small results, whose cost is mostly the fixed cost of a query.
func (a asker) lookups() []query {
	return []query{
		a.now(`{` + a.one + `}`),
		a.now(`count({` + a.one + `})`),
		a.list(listSeries, `{`+a.one+`}`),
		a.list(listNames, `{`+a.one+`}`),
		a.now(`node_load1{` + a.one + `}`),
		a.last(`node_load1{`+a.one+`}`, 6*time.Hour, 15*time.Second),
		a.last(`rate(node_cpu_seconds_total{cpu="0",mode="user",`+a.one+`}[5m])`, time.Hour, 15*time.Second),
		a.now(`sum(node_load1)`),
	}
}

// long returns dashboard queries over weeks. They start and end at a multiple of the step, as on a dashboard.
func (a asker) long() []query {
	a.end = a.end.Truncate(24 * time.Hour)
	return []query{
		a.last(`sum by (mode) (rate(node_cpu_seconds_total[1h]))`, a.all, time.Hour),
		a.last(`max by (device) (max_over_time(node_disk_io_now[1h]))`, a.all, time.Hour),
		a.last(`avg_over_time(node_load1[1h])`, a.all, time.Hour),
		a.last(`node_load1`, a.all, time.Hour),
		a.last(`quantile_over_time(0.9, node_load1[1h])`, a.all/2, time.Hour),
		a.last(`topk(3, rate(node_network_receive_bytes_total[1h]))`, a.all, time.Hour),
		a.last(`sum(increase(http_requests_total[1d]))`, a.all, 24*time.Hour),
	}
}
