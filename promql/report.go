package promql

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/promql/resolution"
)

// Report describes how the fragments of the queries in a context were answered.
type Report struct {
	mu        sync.Mutex
	fragments []FragmentStats
}

type reportKey struct{}

// Into returns a context whose queries add to the report.
func (r *Report) Into(ctx context.Context) context.Context {
	return context.WithValue(ctx, reportKey{}, r)
}

// noteFragment adds a fragment to the report of ctx, if there is one.
func noteFragment(ctx context.Context, p FragmentStats) {
	if r, ok := ctx.Value(reportKey{}).(*Report); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fragments = append(r.fragments, p)
	}
}

// noteRead adds a read of the evaluator to the report of ctx. If a fragment with the same selector was left to the
// evaluator, the read is added to that fragment.
func noteRead(ctx context.Context, matchers []*labels.Matcher, series int, segments []SegmentStats) {
	r, ok := ctx.Value(reportKey{}).(*Report)
	if !ok {
		return
	}
	selector := (&parser.VectorSelector{LabelMatchers: matchers}).String()
	why := "the selector returns raw samples"
	if segments[0].Approximate {
		why = "the samples of the selector are reconstructed from rollups"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.fragments {
		if p := &r.fragments[i]; p.selector == selector && p.Refused != "" {
			p.Segments, p.Series = append(p.Segments, segments...), p.Series+series
			return
		}
	}
	r.fragments = append(r.fragments, FragmentStats{Expr: selector, Segments: segments, Series: series, Refused: why,
		selector: selector})
}

// noteNamed adds a read of the rollup with a name to the report of ctx. If a fragment was left to the evaluator because
// of this name, the read is added to that fragment.
func noteNamed(ctx context.Context, name string, s SegmentStats) {
	r, ok := ctx.Value(reportKey{}).(*Report)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.fragments {
		if p := &r.fragments[i]; p.named == name && len(p.Segments) == 0 {
			p.Segments, p.Series, p.Refused = []SegmentStats{s}, s.Series, "the metric name is the name of a rollup"
			return
		}
	}
	r.fragments = append(r.fragments, FragmentStats{Expr: name, named: name, Segments: []SegmentStats{s},
		Series: s.Series, Refused: "the metric name is the name of a rollup"})
}

// Fragments returns the fragments reported so far.
func (r *Report) Fragments() []FragmentStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.fragments)
}

// Resolution summarizes the resolutions that answered the fragments, such as "1h" or "5m, 5m snapped, raw". It returns
// "" if nothing was reported. Reads of the evaluator count as raw, except rollups read by name and samples made from
// buckets.
func (r *Report) Resolution() string {
	var all []string
	for _, p := range r.Fragments() {
		if p.IsFromRaw() {
			all = append(all, "raw")
			continue
		}
		for _, s := range p.Segments {
			all = append(all, s.String())
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// SegmentStats describes how a range of a fragment's steps was answered.
type SegmentStats struct {
	// From and To are the first and the last evaluation time.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Resolution is raw, 5m or 1h.
	Resolution string `json:"resolution"`
	// Edges is exact if the answer is the same as from raw samples, snapped if windows were moved to the edges of
	// buckets, widened if windows were also made longer, and approximate if a function read samples made from buckets.
	Edges       string `json:"edges"`
	Approximate bool   `json:"approximate,omitempty"`
	// Series is the number of series found.
	Series int `json:"series"`
}

// String returns the resolution, and the edges unless they are exact.
func (s SegmentStats) String() string {
	text := s.Resolution
	if s.Edges != resolution.FitAligned.String() {
		text += " " + s.Edges
	}
	if s.Approximate {
		text += " approximate"
	}
	return text
}

// stats returns the statistics of a segment.
func (s *segment) stats(series int) SegmentStats {
	return SegmentStats{
		From: time.UnixMilli(s.eval.first).UTC(), To: time.UnixMilli(s.eval.last()).UTC(),
		Resolution: s.Resolution.String(),
		Edges:      s.Fit.String(), Approximate: s.Approximate, Series: series,
	}
}
