package exporter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/labelorder"
	"github.com/cassia-db/cassia/storage/query"
)

// ErrNothing means that nothing matched: no file was written.
var ErrNothing = errors.New("exporter: no samples match")

// Options select what to export.
type Options struct {
	Tenant string
	// Selectors choose series: those that all matchers of any of them match. None: all series.
	Selectors [][]*labels.Matcher
	// MinT and MaxT bound the samples, both included, milliseconds.
	MinT, MaxT int64
	// BlockWidth is how wide a block is, milliseconds; blocks begin at multiples of it.
	BlockWidth int64
	// StartTimestamps writes them into blocks, in encodings that only a Prometheus from 3.10 on reads.
	StartTimestamps bool
	// LeaveRollups leaves out times whose samples have expired: otherwise samples are made of their rollups.
	LeaveRollups bool
	// Now is the clock, of which blocks have their names.
	Now func() time.Time
	// Progress is called after each part; nil: it isn't reported. Warn is called for data that are left out because they are corrupt.
	Progress func(Progress)
	Warn     func(error)
}

// Progress is how far an export has come.
type Progress struct {
	Stats
	// Done is the part that is done, 0 to 1.
	Done float64
	// NowMS is what it is working on, milliseconds.
	NowMS int64
}

// Stats count exported series and samples.
type Stats struct {
	// Series counts different series, and is exact up to MaxCounted.
	Series int
	// Samples counts those written, Histograms the native ones among them.
	Samples, Histograms int64
	// Made counts those that are made of rollups.
	Made int64
	// Bytes is the size of all files, and Files their number; blocks count as one each.
	Bytes int64
	Files int
	// LeftOut and Changed count properties that the format can't express.
	LeftOut LeftOut
	// Corrupt counts rows that could not be read.
	Corrupt int
}

// LeftOut counts properties that a format can't express.
type LeftOut struct {
	// Histograms and Stale count samples that aren't there; HistogramSeries the series that lost some, once a piece.
	Histograms, HistogramSeries, Stale int64
	// NaNs counts those whose bits were lost, StartTimestamps samples that lost theirs.
	NaNs, StartTimestamps int64
	// Example is a series that lost histograms.
	Example string
	// Buckets are rollups of expired samples that may lack some: their native histograms were too large to be kept, or their values can't be added up.
	Buckets int64
}

// MaxCounted bounds the series that are remembered for the count.
const MaxCounted = 1 << 20

const dayMS = 24 * 60 * 60 * 1000

// run is one export.
type run struct {
	Options
	store   *storage.Store
	stats   Stats
	seen    map[uint64]struct{}
	samples chunk.Samples
	made    maker
	// total and done are the pieces of work.
	total, done int
}

func newRun(s *storage.Store, o Options) *run {
	if len(o.Selectors) == 0 {
		o.Selectors = [][]*labels.Matcher{nil}
	}
	return &run{Options: o, store: s, seen: map[uint64]struct{}{}}
}

// pieces cuts the spans of time that may have samples where time is a multiple of width after offset.
func (r *run) pieces(ctx context.Context, width, offset int64) (out []query.Span, err error) {
	spans, err := r.store.Spans(ctx, r.Tenant, r.MinT, r.MaxT, !r.LeaveRollups)
	if err != nil {
		return nil, err
	}
	for _, sp := range spans {
		for from := sp.MinT; from <= sp.MaxT; {
			end := floorDiv(from-offset, width)*width + offset + width - 1
			if last := len(out) - 1; last >= 0 && floorDiv(out[last].MaxT-offset, width) == floorDiv(from-offset, width) {
				out[last].MaxT = min(end, sp.MaxT) // A gap within a piece.
			} else {
				out = append(out, query.Span{MinT: from, MaxT: min(end, sp.MaxT)})
			}
			from = end + 1
		}
	}
	return out, nil
}

// metrics lists the metrics that may have series in a piece, sorted.
func (r *run) metrics(ctx context.Context, sp query.Span) ([]string, error) {
	var all []string
	for _, ms := range r.Selectors {
		names, err := r.store.LabelValues(ctx, labels.MetricName, r.query(sp, ms))
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (r *run) query(sp query.Span, ms []*labels.Matcher) query.Query {
	return query.Query{Tenant: r.Tenant, MinT: sp.MinT, MaxT: sp.MaxT, Matchers: ms, Sorted: true, Warn: r.warn}
}

func (r *run) warn(err error) {
	r.stats.Corrupt++
	if r.Warn != nil {
		r.Warn(err)
	}
}

// series finds the selected series of a metric in a piece, or, for metric "", of all; sorted, each series once.
func (r *run) series(ctx context.Context, sp query.Span, metric string) ([]*source, error) {
	var all []*source
	for _, ms := range r.Selectors {
		if metric != "" {
			ms = append(slices.Clip(ms), labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric))
		}
		found, err := r.sources(ctx, r.query(sp, ms))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	labelorder.Sort(all, func(s *source) labels.Labels { return s.Labels })
	return slices.CompactFunc(all, func(a, b *source) bool { return labels.Equal(a.Labels, b.Labels) }), nil
}

// read returns the samples of a series, which are good until the next call.
func (r *run) read(s *source) (*chunk.Samples, error) {
	r.samples.Reset()
	for _, kept := range s.kept {
		if err := kept.Samples(&r.samples); err != nil {
			return nil, err
		}
	}
	if len(s.fallbacks) > 0 {
		kept := r.samples.Len()
		if err := r.made.appendFallback(&r.samples, s.fallbacks); err != nil {
			return nil, err
		}
		r.stats.Made += int64(r.samples.Len() - kept)
		r.stats.LeftOut.Buckets += r.made.incomplete
	}
	return &r.samples, nil
}

// count adds the samples that were written of a series.
func (r *run) count(ls labels.Labels, floats, histograms int) {
	r.stats.Samples += int64(floats + histograms)
	r.stats.Histograms += int64(histograms)
	if len(r.seen) < MaxCounted {
		r.seen[ls.Hash()] = struct{}{}
	}
	r.stats.Series = len(r.seen)
}

// leaveHistograms notes histograms that a text can't express.
func (r *run) leaveHistograms(ls labels.Labels, n int) {
	if n == 0 {
		return
	}
	out := &r.stats.LeftOut
	out.Histograms += int64(n)
	out.HistogramSeries++
	if out.Example == "" {
		out.Example = ls.String()
	}
}

// report reports the progress, part of a piece included.
func (r *run) report(sp query.Span, part float64) {
	if r.Progress != nil {
		r.Progress(Progress{Stats: r.stats, Done: (float64(r.done) + part) / float64(max(1, r.total)), NowMS: sp.MinT})
	}
}

// result returns the counts, and ErrNothing where there is nothing.
func (r *run) result() (Stats, error) {
	if r.stats.Samples > 0 {
		return r.stats, nil
	}
	return r.stats, r.nothing()
}

// nothing returns why nothing was written.
func (r *run) nothing() error {
	if n := r.stats.LeftOut.Histograms; n > 0 {
		return fmt.Errorf("%w: the format doesn't support native histograms, and %d of them were skipped; use --format=blocks", ErrNothing, n)
	}
	if n := r.stats.LeftOut.Buckets; n > 0 {
		return fmt.Errorf("%w: raw samples have expired, and %d rollup buckets don't contain the native histograms, which were too large for a row", ErrNothing, n)
	}
	return ErrNothing
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// bounds returns the first and last timestamp of samples that aren't none.
func bounds(s *chunk.Samples) (minT, maxT int64) {
	minT, maxT = math.MaxInt64, math.MinInt64
	if n := len(s.T); n > 0 {
		minT, maxT = s.T[0], s.T[n-1]
	}
	if n := len(s.H); n > 0 {
		minT, maxT = min(minT, s.H[0].T), max(maxT, s.H[n-1].T)
	}
	return minT, maxT
}

// startOf returns the start timestamp of a float, 0 where it isn't known.
func startOf(s *chunk.Samples, i int) int64 {
	if len(s.ST) == 0 {
		return 0
	}
	return s.ST[i]
}
