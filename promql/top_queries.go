package promql

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
)

// These constants bound the list of queries that ended. Longer texts are truncated, and queries that are equal after
// truncation are counted together. If there are more than maxTopQueries different queries, the queries with the
// shortest total time are dropped.
const (
	maxTopQueries = 1000
	maxTopBytes   = 2000
	// topPeriod is the length of a period in which queries are counted. The list covers the current period and the one
	// before.
	topPeriod = time.Hour
)

// TopQuery is the cost of a query that ran at least once.
type TopQuery struct {
	Query string `json:"query"`
	// Tenants are the tenants whose series the query reads.
	Tenants []string `json:"tenants"`
	// Count is the number of runs, Errors the number of failed runs.
	Count  int64 `json:"count"`
	Errors int64 `json:"errors"`
	// Seconds is the total time from request to result, including waiting. Slowest is the longest run.
	Seconds float64 `json:"seconds"`
	Slowest float64 `json:"slowestSeconds"`
	// Samples is the total number of samples read. PeakSamples is the maximum that one run held at once.
	Samples     int64     `json:"samples"`
	PeakSamples int64     `json:"peakSamples"`
	Last        time.Time `json:"last"`
	// Origin is the origin of the last run.
	Origin Origin `json:"origin"`
}

// TopQueries lists the most expensive queries.
type TopQueries struct {
	// Since is the time since which queries have been counted.
	Since   time.Time  `json:"since"`
	Queries []TopQuery `json:"queries"`
	// All is the number of different queries.
	All int `json:"all"`
}

// TopOrders are the sort orders that Engine.TopQueries accepts.
var TopOrders = []string{"time", "slowest", "samples", "count"}

// topQueries counts the queries that ended.
type topQueries struct {
	mu sync.Mutex
	// current holds the queries since currentStart, previous the queries of the previous period, which started at
	// previousStart.
	current, previous           map[string]*TopQuery
	currentStart, previousStart time.Time
}

// add counts a query that has ended.
func (t *topQueries) add(one TopQuery) {
	one.Query = truncateText(one.Query, maxTopBytes)
	key := strings.Join(one.Tenants, "|") + "\x00" + one.Query
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == nil || one.Last.Sub(t.currentStart) >= topPeriod {
		t.previous, t.previousStart = t.current, t.currentStart
		if one.Last.Sub(t.currentStart) >= 2*topPeriod {
			t.previous = nil // No query ended in the previous topPeriod.
		}
		t.current, t.currentStart = map[string]*TopQuery{}, one.Last
	}
	q := t.current[key]
	if q == nil {
		if len(t.current) >= maxTopQueries {
			t.dropCheapest()
		}
		one.Query = strings.Clone(one.Query)
		t.current[key] = &one
		return
	}
	q.add(&one)
}

func (q *TopQuery) add(other *TopQuery) {
	q.Count += other.Count
	q.Errors += other.Errors
	q.Seconds += other.Seconds
	q.Samples += other.Samples
	q.Slowest, q.PeakSamples = max(q.Slowest, other.Slowest), max(q.PeakSamples, other.PeakSamples)
	if other.Last.After(q.Last) {
		q.Last, q.Origin = other.Last, other.Origin
	}
}

// dropCheapest removes the query with the shortest total time.
func (t *topQueries) dropCheapest() {
	least, found := "", (*TopQuery)(nil)
	for key, q := range t.current {
		if found == nil || q.Seconds < found.Seconds {
			least, found = key, q
		}
	}
	delete(t.current, least)
}

// list returns up to limit queries that read only series of the given tenants, sorted by one of TopOrders.
func (t *topQueries) list(tenants []string, by string, limit int, now time.Time) TopQueries {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := TopQueries{Since: t.currentStart.UTC(), Queries: []TopQuery{}}
	if t.current == nil {
		out.Since = now.UTC()
	}
	all := map[string]TopQuery{}
	for _, fragment := range []map[string]*TopQuery{t.previous, t.current} {
		for key, q := range fragment {
			if now.Sub(q.Last) >= 2*topPeriod || !isSubset(q.Tenants, tenants) {
				continue
			}
			one := *q
			if known, ok := all[key]; ok {
				one = known
				one.add(q)
			}
			all[key] = one
		}
	}
	if t.previous != nil && now.Sub(t.previousStart) < 3*topPeriod {
		out.Since = t.previousStart.UTC()
	}
	for _, q := range all {
		out.Queries = append(out.Queries, q)
	}
	out.All = len(out.Queries)
	slices.SortFunc(out.Queries, func(a, b TopQuery) int {
		return cmp.Or(cmp.Compare(b.orderValue(by), a.orderValue(by)), cmp.Compare(a.Query, b.Query),
			slices.Compare(a.Tenants, b.Tenants))
	})
	out.Queries = out.Queries[:min(limit, len(out.Queries))]
	return out
}

func (q *TopQuery) orderValue(order string) float64 {
	switch order {
	case "count":
		return float64(q.Count)
	case "samples":
		return float64(q.Samples)
	case "slowest":
		return q.Slowest
	}
	return q.Seconds
}

// isSubset reports whether all tenants in of are among tenants.
func isSubset(of, tenants []string) bool {
	return !slices.ContainsFunc(of, func(t string) bool { return !slices.Contains(tenants, t) })
}

// TopQueries returns the queries that ended in the current or the previous period (see topPeriod) and that read only
// series of the given tenants, most expensive first. by is one of TopOrders.
func (e *Engine) TopQueries(tenants []string, by string, limit int) TopQueries {
	return e.top.list(tenants, by, limit, time.Now())
}

// countTop counts a query that has ended.
func (e *Engine) countTop(active *ActiveQuery, q promengine.Query, result *promengine.Result) {
	now := time.Now()
	took := now.Sub(active.Since).Seconds()
	one := TopQuery{Query: active.Query, Tenants: active.Tenants, Count: 1, Seconds: took, Slowest: took,
		Last: now.UTC(), Origin: active.Origin.withShortTexts()}
	if s := q.Stats(); s != nil && s.Samples != nil {
		one.Samples, one.PeakSamples = s.Samples.TotalSamples, int64(s.Samples.PeakSamples)
	}
	if result.Err != nil {
		one.Errors = 1
	}
	e.top.add(one)
}

// withShortTexts returns an origin whose texts are short enough to be kept.
func (o Origin) withShortTexts() Origin {
	return Origin{truncateText(o.Address, slowOriginBytes), truncateText(o.UserAgent, slowOriginBytes),
		truncateText(o.RequestID, slowOriginBytes)}
}
