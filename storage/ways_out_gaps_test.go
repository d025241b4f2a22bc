package storage

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// raise notes in the model when rows are kept for longer than before.
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

// noted has the model count passing time as from before the retention was raised, until some process has noted that.
func (r *waysRun) noted() {
	for _, kept := range r.raised {
		r.model.gap(r.now().UnixMilli(), kept)
		r.model.gap(r.now().Add(day).UnixMilli(), kept)
	}
	if len(r.raised) == 0 || r.procs[0].Store == nil {
		return
	}
	t, err := r.procs[0].readHorizons(context.Background(), "t", nil)
	if h := t.of(retention.DefaultClass, rollup.Raw); err == nil && h != nil && !longerKept(r.longest%format.MaxTime, h.KeptMS) {
		r.raised = nil
	}
}

// told returns up to when an answer about a time isn't a resolution's, by the process' horizons.
func (p *waysProcess) told(res rollup.Resolution, t int64) int64 {
	list, _, err := p.horizonsNow(context.Background(), "t", t, t)
	if err != nil {
		p.r.fail("asking for horizons: %v", err)
		return format.MaxTime
	}
	return list[0].At[res]
}

// besideGaps returns the spans between which rows may have vanished by themselves, or not: a question about several of them isn't
// answered by samples from before the last gap.
func (p *waysProcess) besideGaps(res rollup.Resolution) (spans []query.Span) {
	edges := []int64{-format.MaxTime, format.MaxTime}
	if t, err := p.horizonsOf(context.Background(), "t"); err != nil {
		p.r.fail("asking for horizons: %v", err)
	} else if h := t.of(retention.DefaultClass, res); h != nil {
		p.holes(t, retention.DefaultClass, res, func(from, to int64) bool {
			edges = append(edges, from, to)
			return true
		})
	}
	slices.Sort(edges)
	for i, edge := range slices.Compact(edges)[1:] {
		spans = append(spans, query.Span{MinT: edges[i] + 1, MaxT: edge})
	}
	return spans
}
