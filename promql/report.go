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

// Report collects how the fragments of the queries of a context were answered.
type Report struct {
	mu        sync.Mutex
	fragments []FragmentStats
}

type reportKey struct{}

// Into returns a context whose queries add to the report.
func (r *Report) Into(ctx context.Context) context.Context {
	return context.WithValue(ctx, reportKey{}, r)
}

// noteFragment adds a fragment to the report that ctx carries, if it carries one.
func noteFragment(ctx context.Context, p FragmentStats) {
	if r, ok := ctx.Value(reportKey{}).(*Report); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fragments = append(r.fragments, p)
	}
}

// noteRead reports that the evaluator read series by itself, with the fragment that was left to it for that, if any.
func noteRead(ctx context.Context, matchers []*labels.Matcher, series int, segments []SegmentStats) {
	r, ok := ctx.Value(reportKey{}).(*Report)
	if !ok {
		return
	}
	selector := (&parser.VectorSelector{LabelMatchers: matchers}).String()
	why := "the evaluator reads raw samples"
	if segments[0].Approximate {
		why = "its samples are reconstructed from buckets"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.fragments {
		if p := &r.fragments[i]; p.selector == selector && p.Refused != "" {
			p.Segments, p.Series = append(p.Segments, segments...), p.Series+series
			return
		}
	}
	r.fragments = append(r.fragments, FragmentStats{Expr: selector, Segments: segments, Series: series, Refused: why, selector: selector})
}

// noteNamed reports that the evaluator read the rollup of a name, with the fragment that was left to it for that, if any.
func noteNamed(ctx context.Context, name string, s SegmentStats) {
	r, ok := ctx.Value(reportKey{}).(*Report)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.fragments {
		if p := &r.fragments[i]; p.named == name && len(p.Segments) == 0 {
			p.Segments, p.Series, p.Refused = []SegmentStats{s}, s.Series, "its name matches a rollup"
			return
		}
	}
	r.fragments = append(r.fragments, FragmentStats{Expr: name, named: name, Segments: []SegmentStats{s}, Series: s.Series, Refused: "its name matches a rollup"})
}

// Fragments returns the fragments reported so far.
func (r *Report) Fragments() []FragmentStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.fragments)
}

// Resolution sums up from what the fragments were answered, such as "1h" or "5m, 5m snapped, raw"; "" if nothing was
// reported. What the evaluator did by itself counts as raw, but for rollups that it read by their names, and for samples that
// were made of buckets.
func (r *Report) Resolution() string {
	var all []string
	for _, p := range r.Fragments() {
		if p.FromRaw() {
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

// SegmentStats describes from what a range of a fragment's steps was answered.
type SegmentStats struct {
	// From and To are the first and the last time that was asked for.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Resolution is raw, 5m or 1h.
	Resolution string `json:"resolution"`
	// Edges are exact: the answer is that of raw samples; snapped: windows were moved to the edges of buckets;
	// or widened: made longer, too. Approximate: a function saw samples made of buckets.
	Edges       string `json:"edges"`
	Approximate bool   `json:"approximate,omitempty"`
	// Series were found.
	Series int `json:"series"`
}

// String returns the resolution, and how it differs from exact.
func (s SegmentStats) String() string {
	text := s.Resolution
	if s.Edges != resolution.Aligned.String() {
		text += " " + s.Edges
	}
	if s.Approximate {
		text += " approximate"
	}
	return text
}

// stats returns the statistics of a segment.
func (l *segment) stats(series int) SegmentStats {
	return SegmentStats{
		From: time.UnixMilli(l.eval.first).UTC(), To: time.UnixMilli(l.eval.last()).UTC(), Resolution: l.Resolution.String(),
		Edges: l.Fit.String(), Approximate: l.Approximate, Series: series,
	}
}
