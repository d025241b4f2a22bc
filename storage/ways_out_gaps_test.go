package storage

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// raise updates the longest retention of the processes. If it has increased and rows expire, raise records the change
// in the model.
func (r *waysRun) raise() {
	longest := int64(0)
	for _, p := range r.procs {
		longest = max(longest, keptMS(p.opts.Retention))
	}
	if longest > r.longest && r.longest > 0 && r.expiring != nil {
		r.model.raised(r.longest, r.now().UnixMilli())
		r.raised = append(r.raised, r.longest)
	}
	r.longest = longest
}

// noted makes the model assume the shorter retention until a process has recorded the raised one.
func (r *waysRun) noted() {
	for _, kept := range r.raised {
		r.model.gap(r.now().UnixMilli(), kept)
		r.model.gap(r.now().Add(day).UnixMilli(), kept)
	}
	if len(r.raised) == 0 || r.procs[0].Store == nil {
		return
	}
	value, err := r.procs[0].storedBoundaries(context.Background(), "t")
	var row struct {
		List []retention.Boundary `json:"horizons"`
	}
	// The first boundary is of raw rows in the default class.
	if err == nil && json.Unmarshal(value, &row) == nil && len(row.List) > 0 {
		if kept := row.List[0].KeptMS; kept == 0 || kept >= r.longest {
			r.raised = nil
		}
	}
}

// told returns the time until which answers about t don't use a resolution, according to the process' retention
// boundaries.
func (p *waysProcess) told(res rollup.Resolution, t int64) int64 {
	shown, err := p.retention.VisibleRows(context.Background(), "t", t, t, false)
	if err != nil {
		p.r.fail("asking for horizons: %v", err)
		return format.MaxTime
	}
	return shown.Hidden[0].At[res]
}

// besideGaps splits the whole time into spans at the edges of holes, in which rows may or may not have expired. A query
// across a hole would return no samples from before the end of the hole.
func (p *waysProcess) besideGaps() (spans []query.Span) {
	edges := []int64{-format.MaxTime, format.MaxTime}
	holes, err := p.retention.HoleEdges(context.Background(), "t")
	if err != nil {
		p.r.fail("asking for holes: %v", err)
	}
	edges = append(edges, holes...)
	slices.Sort(edges)
	for i, edge := range slices.Compact(edges)[1:] {
		spans = append(spans, query.Span{MinT: edges[i] + 1, MaxT: edge})
	}
	return spans
}
