package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// Limits on a search for a metric.
const (
	maxMetricName = 1024
	maxSimilar    = 3
)

// recentAge is the max age of the newest sample of a metric that counts as recent.
const recentAge = time.Hour

// metricAnswer is the response of the endpoint metric.
type metricAnswer struct {
	Name  string `json:"name"`
	Found bool   `json:"found"`
	// RollupOf is the name of the metric if the requested name is a rollup of it. A rollup exists if its metric exists.
	RollupOf string `json:"rollup_of,omitempty"`
	// Recent is set if the metric's newest sample is younger than recentAge. First is the start of the first sealed raw
	// window that contains the metric. Last is the end of the last such window, or the time of a newer unsealed sample.
	// For a rollup, First and Last cover only sealed windows, because unsealed samples have no rollups.
	Recent bool      `json:"recent"`
	First  time.Time `json:"first,omitzero"`
	Last   time.Time `json:"last,omitzero"`
	// Similar contains the most similar names of metrics, if the metric doesn't exist.
	Similar []string `json:"similar"`
}

func (a *api) serveMetric(r *http.Request) (any, error) {
	out := metricAnswer{Name: r.FormValue("name"), Similar: []string{}}
	if out.Name == "" || len(out.Name) > maxMetricName {
		return nil, badRequest(fmt.Sprintf("name must have 1 to %d bytes", maxMetricName))
	}
	name, err := onlyTenant(r)
	if err != nil {
		return nil, err
	}
	leave, err := a.waitToCount(r.Context())
	if err != nil {
		return nil, err
	}
	defer leave()
	names, err := a.Store.LabelValues(r.Context(), labels.MetricName,
		query.Query{Tenant: name, MinT: -format.MaxTime, MaxT: format.MaxTime})
	if err != nil {
		return nil, err
	}
	metric := out.Name
	if _, out.Found = slices.BinarySearch(names, metric); !out.Found {
		if of := a.RollupOf(metric); of != "" {
			if _, out.Found = slices.BinarySearch(names, of); out.Found {
				out.RollupOf, metric = of, of
			}
		}
	}
	if !out.Found {
		out.Similar, err = similarNames(r.Context(), out.Name, names)
		return out, err
	}
	seen, err := a.Store.MetricsSeen(r.Context(), name, []string{metric})
	if err != nil {
		return nil, err
	}
	out.First, out.Last = seen[metric].First, seen[metric].Last
	if out.RollupOf != "" {
		return out, nil
	}
	newest, err := a.Store.NewestUnsealed(r.Context(), name, metric)
	if newest.After(out.Last) {
		out.Last = newest
	}
	out.Recent = time.Since(newest) < recentAge
	return out, err
}

// similarNames returns the names that contain name or differ from it in at most a third of its bytes, the most similar
// first.
func similarNames(ctx context.Context, name string, names []string) ([]string, error) {
	type candidate struct {
		name     string
		distance int
	}
	most := max(1, len(name)/3)
	found, d := []candidate{}, editDistance{}
	for i, other := range names {
		if i%1000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at := most + 1
		if n := len(other) - len(name); -most <= n && n <= most {
			at = d.between(strings.ToLower(name), strings.ToLower(other), most)
		}
		if at > most && len(name) >= 4 && strings.Contains(other, name) {
			at = most + len(other) - len(name) // These follow all names with typing errors.
		} else if at > most {
			continue
		}
		found = append(found, candidate{other, at})
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	out := []string{}
	for _, c := range found[:min(len(found), maxSimilar)] {
		out = append(out, c.name)
	}
	return out, nil
}

// editDistance computes edit distances. It reuses the memory of its rows.
type editDistance struct{ before, row []int }

// between returns the min number of bytes to insert, delete or replace to turn a into b. If the number exceeds most,
// the result is any number greater than most.
func (d *editDistance) between(a, b string, most int) int {
	d.before, d.row = d.before[:0], append(d.row[:0], make([]int, len(b)+1)...)
	for k := range len(b) + 1 {
		d.before = append(d.before, k)
	}
	for i := range len(a) {
		rowMin := i + 1
		d.row[0] = rowMin
		for k := range len(b) {
			change := d.before[k]
			if a[i] != b[k] {
				change++
			}
			d.row[k+1] = min(change, d.before[k+1]+1, d.row[k]+1)
			rowMin = min(rowMin, d.row[k+1])
		}
		if rowMin > most {
			return rowMin
		}
		d.before, d.row = d.row, d.before
	}
	return d.before[len(b)]
}
