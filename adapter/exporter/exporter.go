package exporter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/labelorder"
	"github.com/cassia-db/cassia/storage/query"
)

// ErrNothing means that no samples matched and no file was written.
var ErrNothing = errors.New("exporter: no samples match")

// Options select what to export.
type Options struct {
	Tenant string
	// Selectors select the series that match all matchers of at least one selector. Empty: all series.
	Selectors [][]*labels.Matcher
	// MinT and MaxT bound the samples, both inclusive, in milliseconds.
	MinT, MaxT int64
	// BlockWidth is the width of a block in milliseconds. Blocks are aligned to multiples of it.
	BlockWidth int64
	// StartTimestamps writes start timestamps to blocks, in encodings that only Prometheus 3.10 or later reads.
	StartTimestamps bool
	// LeaveRollups omits times whose raw samples have expired, instead of computing samples from rollups.
	LeaveRollups bool
	// Now is the clock; the names of blocks contain its time.
	Now func() time.Time
	// Progress, if not nil, is called after each part. Warn is called for corrupt data that is skipped, and once for
	// each other warning of the store, for example that values are estimates.
	Progress func(Progress)
	Warn     func(error)
}

// Progress is the progress of an export.
type Progress struct {
	Stats
	// Done is the completed fraction, 0 to 1.
	Done float64
	// NowMS is the start of the piece that is being exported, in milliseconds.
	NowMS int64
}

// Stats counts exported series and samples.
type Stats struct {
	// Series is the number of distinct series, exact up to MaxCounted.
	Series int
	// Samples counts all written samples. Histograms counts the native histograms among them.
	Samples, Histograms int64
	// Made counts the samples that were computed from rollups. Estimated counts the part whose rollups were
	// imported from downsampled blocks.
	Made, Estimated int64
	// Bytes is the total size of the files, and Files their number; a block counts as one file.
	Bytes int64
	Files int
	// LeftOut counts properties that the format can't express.
	LeftOut LeftOut
	// Corrupt counts unreadable rows.
	Corrupt int
	// Missing is query.ErrLateUnsealed if acknowledged samples are missing.
	Missing error
}

// LeftOut counts properties that a format can't express.
type LeftOut struct {
	// Histograms and Stale count omitted samples. HistogramSeries counts the series with omitted histograms, once per
	// piece.
	Histograms, HistogramSeries, Stale int64
	// NaNs counts NaNs that lost their bits, and StartTimestamps samples that lost their start timestamp.
	NaNs, StartTimestamps int64
	// Example is a series with omitted histograms.
	Example string
	// Buckets counts rollups of expired samples that may be incomplete: their native histograms were too large to be
	// kept, or their values can't be added.
	Buckets int64
}

// MaxCounted bounds the series that are kept in memory for Stats.Series.
const MaxCounted = 1 << 20

const dayMS = 24 * 60 * 60 * 1000

// run is the state of an export.
type run struct {
	Options
	store   *storage.Store
	stats   Stats
	seen    map[uint64]struct{}
	warned  map[string]bool // by the text of a warning; damage is excluded
	samples chunk.Samples
	made    maker
	// total and done count pieces.
	total, done int
	// madeStale and madeHistograms count the stale markers and histograms that were computed from rollups for the last
	// series.
	madeStale, madeHistograms int
}

func newRun(s *storage.Store, o Options) *run {
	if len(o.Selectors) == 0 {
		o.Selectors = [][]*labels.Matcher{nil}
	}
	return &run{Options: o, store: s, seen: map[uint64]struct{}{}, warned: map[string]bool{}}
}

// pieces returns the spans of time that may have samples, cut into pieces: the cuts are at the multiples of width,
// shifted by offset.
func (r *run) pieces(ctx context.Context, width, offset int64) (out []query.Span, err error) {
	spans, err := r.store.Spans(ctx, r.Tenant, r.MinT, r.MaxT, !r.LeaveRollups)
	if err != nil {
		return nil, err
	}
	for _, sp := range spans {
		for from := sp.MinT; from <= sp.MaxT; {
			end := floorDiv(from-offset, width)*width + offset + width - 1
			if last := len(out) - 1; last >= 0 &&
				floorDiv(out[last].MaxT-offset, width) == floorDiv(from-offset, width) {
				out[last].MaxT = min(end, sp.MaxT) // a gap within a piece
			} else {
				out = append(out, query.Span{MinT: from, MaxT: min(end, sp.MaxT)})
			}
			from = end + 1
		}
	}
	return out, nil
}

// metrics returns the metrics that may have series in a piece, sorted.
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

// warn counts unreadable rows. It passes on each other warning only once, because every query repeats it.
func (r *run) warn(err error) {
	switch text := err.Error(); {
	case errors.As(err, new(*damage.CorruptRowError)), errors.As(err, new(*damage.DamagedRowsError)):
		r.stats.Corrupt++
	case errors.Is(err, query.ErrLateUnsealed):
		r.stats.Missing = err
		return
	case r.warned[text]:
		return
	default:
		r.warned[text] = true
	}
	if r.Warn != nil {
		r.Warn(err)
	}
}

// series returns the selected series of a metric in a piece, or of all metrics if metric is "": sorted, each series
// once.
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

// read returns the samples of a series. They are valid until the next call.
func (r *run) read(s *source) (*chunk.Samples, error) {
	r.samples.Reset()
	r.madeStale, r.madeHistograms = 0, 0
	for _, kept := range s.kept {
		if err := kept.Samples(&r.samples); err != nil {
			return nil, err
		}
	}
	if len(s.fallbacks) > 0 {
		kept, stale, histograms := r.samples.Len(), staleIn(r.samples.V), len(r.samples.H)
		if err := r.made.appendFallback(&r.samples, s.fallbacks); err != nil {
			return nil, err
		}
		r.stats.Made += int64(r.samples.Len() - kept)
		r.madeStale, r.madeHistograms = staleIn(r.samples.V)-stale, len(r.samples.H)-histograms
		r.stats.Estimated += r.made.estimated
		r.stats.LeftOut.Buckets += r.made.incomplete
	}
	return &r.samples, nil
}

func staleIn(values []float64) (n int) {
	for _, v := range values {
		if value.IsStaleNaN(v) {
			n++
		}
	}
	return n
}

// leaveMade subtracts from Stats.Made the samples that were computed from rollups for the last series but weren't
// written. A text format writes no histograms, and the only floats that it leaves out are stale markers. floats is the
// number of floats that weren't written.
func (r *run) leaveMade(floats int) {
	r.stats.Made -= int64(r.madeHistograms + min(floats, r.madeStale))
}

// count counts the written samples of a series.
func (r *run) count(ls labels.Labels, floats, histograms int) {
	r.stats.Samples += int64(floats + histograms)
	r.stats.Histograms += int64(histograms)
	if len(r.seen) < MaxCounted {
		r.seen[ls.Hash()] = struct{}{}
	}
	r.stats.Series = len(r.seen)
}

// leaveHistograms counts omitted histograms.
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

// report reports the progress, given the completed fraction of the current piece.
func (r *run) report(sp query.Span, part float64) {
	if r.Progress != nil {
		r.Progress(Progress{Stats: r.stats, Done: (float64(r.done) + part) / float64(max(1, r.total)), NowMS: sp.MinT})
	}
}

// result returns the counts, and ErrNothing if nothing was written.
func (r *run) result() (Stats, error) {
	if r.stats.Samples > 0 {
		return r.stats, nil
	}
	return r.stats, r.nothing()
}

// nothing returns the error for an export without samples.
func (r *run) nothing() error {
	if n := r.stats.LeftOut.Histograms; n > 0 {
		return fmt.Errorf(
			"%w: the format doesn't support native histograms, and %d of them were skipped; use --format=blocks",
			ErrNothing, n,
		)
	}
	if n := r.stats.LeftOut.Buckets; n > 0 {
		return fmt.Errorf(
			"%w: raw samples have expired, and %d rollup buckets don't contain the native histograms, which were too large for a row",
			ErrNothing, n,
		)
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

// bounds returns the first and last timestamp of samples. s must not be empty.
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

// startOf returns the start timestamp of a float, 0 if it is unknown.
func startOf(s *chunk.Samples, i int) int64 {
	if len(s.ST) == 0 {
		return 0
	}
	return s.ST[i]
}
