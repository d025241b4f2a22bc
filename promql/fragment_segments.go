package promql

import (
	"context"
	"math"
	"sync"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/expand"
)

// segment is a range of a fragment's steps that is answered for one tenant from one resolution.
//
//	fragment   |───────────── steps ─────────────|
//	segments   [ 1h        ][ 5m     ][ raw      ]     each with a Select of its own
//	series       a b          b c       a   c          joined by their labels
type segment struct {
	resolution.Segment
	// fragment is the fragment restricted to the segment's steps.
	*fragment
	// tenant is the tenant whose series the segment reads.
	tenant string
	// oldest is the time of the first sample ever written, or math.MinInt64 if it is unknown.
	oldest int64
	// rawBoundary is the newest timestamp at which raw samples of some of the fragment's series are no longer stored.
	rawBoundary int64
	// found holds the series of the segment.
	found []*query.SelectedSeries
	// cuts are the window edges that are inside buckets.
	cuts []int64

	// samples finds the raw samples of series whose buckets can't answer a step. whole finds all columns of the buckets
	// of these series, for times whose raw samples are no longer stored.
	samples, whole lookup
}

// lookup finds a segment's series when the first of them is requested. It is used for data that only few series need.
type lookup struct {
	mu    sync.Mutex
	found map[uint64]*query.SelectedSeries
}

// findSeries returns the series with the given labels, or nil if open doesn't find it. Only the first call calls open.
func (l *lookup) findSeries(series labels.Labels,
	open func() ([]*query.SelectedSeries, error)) (*query.SelectedSeries, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == nil {
		list, err := open()
		if err != nil {
			return nil, err
		}
		l.found = make(map[uint64]*query.SelectedSeries, len(list))
		for _, s := range list {
			l.found[s.Labels.Hash()] = s
		}
	}
	if s := l.found[series.Hash()]; s != nil && labels.Equal(s.Labels, series) {
		return s, nil
	}
	return nil, nil
}

// foundSeries is a series of a fragment. segments has one entry per segment, nil if the segment doesn't contain the
// series.
type foundSeries struct {
	labels   labels.Labels
	segments []*query.SelectedSeries
}

// resolve chooses the resolutions that answer the fragment's steps for a tenant.
func (f *fragment) resolve(ctx context.Context, store *storage.Store, of string,
	how resolutionParams) ([]*segment, resolution.Shortfall, error) {
	r := resolution.Request{
		Func: f.function, Range: f.width, From: f.edges.first, To: f.edges.last(), Step: f.edges.step,
		Mode: how.mode, NoSnap: how.noSnap, Coarsest: how.coarsest, Slot: store.SlotWidth(f.edges.first).Milliseconds(),
		Oldest: math.MinInt64,
		Recent: store.RecentStart(),
	}
	// Segments read whole buckets, so the range extends to the end of the hour that contains r.To: missing data in any
	// of these buckets matters. Ranges of missing data start and end at full hours.
	horizons, err := store.BoundariesOf(ctx, query.Query{Tenant: of, MinT: r.From - r.Range,
		MaxT: bucketfn.CeilTo(r.To, rollup.OneHour.Width()), Matchers: f.matchers})
	if err != nil {
		return nil, resolution.Shortfall{}, err
	}
	setBoundaries(&r, horizons)
	if r.From-r.Range < r.Boundary[rollup.Raw] {
		oldest, err := store.OldestSlot(ctx, of)
		if err != nil {
			return nil, resolution.Shortfall{}, err
		}
		r.Oldest = oldest
	}
	chosen, short, err := resolution.Choose(r)
	if err != nil {
		return nil, resolution.Shortfall{}, err
	}
	segments := make([]*segment, len(chosen))
	for i, s := range chosen {
		if r.Step == 0 { // All steps read the same window.
			s.ToStep, s.Windows.Steps = f.edges.n, f.edges.n
		}
		segments[i] = &segment{Segment: s, tenant: of, fragment: f.cutToSegment(s), oldest: r.Oldest,
			rawBoundary: latestBoundary(horizons, rollup.Raw)}
	}
	return segments, short, nil
}

// setBoundaries sets the newest retention boundary of all classes at each resolution and, if there are multiple
// classes, the boundaries of each.
func setBoundaries(r *resolution.Request, horizons []retention.HiddenTimes) {
	r.Boundary = [3]int64{math.MinInt64, math.MinInt64, math.MinInt64}
	for _, h := range horizons {
		var kept [3]int64
		for res, t := range h.At {
			kept[res] = math.MinInt64
			if t > -format.MaxTime {
				kept[res] = t + 1
			}
			r.Boundary[res] = max(r.Boundary[res], kept[res])
		}
		if len(horizons) > 1 {
			r.Classes = append(r.Classes, kept)
		}
	}
}

// latestBoundary returns the newest retention boundary of any class at a resolution.
func latestBoundary(horizons []retention.HiddenTimes, res rollup.Resolution) int64 {
	t := int64(-format.MaxTime)
	for _, h := range horizons {
		t = max(t, h.At[res])
	}
	return t
}

// cutToSegment returns the part of the fragment for a segment's steps.
func (f *fragment) cutToSegment(s resolution.Segment) *fragment {
	if s.FromStep == 0 && s.ToStep == f.edges.n && s.Resolution == rollup.Raw {
		return f
	}
	cut := *f
	cut.eval = steps{first: f.eval.timeAt(s.FromStep), step: f.eval.step, n: s.ToStep - s.FromStep}
	cut.edges = steps{first: f.edges.timeAt(s.FromStep), step: f.edges.step, n: s.ToStep - s.FromStep}
	cut.minT = max(f.minT, cut.edges.first-f.width+1)
	return &cut
}

// open finds the segment's series.
func (s *segment) open(ctx context.Context, store *storage.Store, warn func(error)) ([]*query.SelectedSeries, error) {
	switch {
	case s.Resolution == rollup.Raw:
		return s.fragment.open(ctx, store, s.tenant, warn)
	case s.Approximate:
		from, to := s.span()
		s.cuts = s.AppendCuts(nil, from-1, to+1)
		// Where raw samples exist, buckets are split at window edges, and their parts are computed from samples.
		kept := s.rawBoundary + store.SlotWidth(s.rawBoundary).Milliseconds()
		return s.openAllColumns(ctx, store, warn, s.AppendCuts(nil, max(kept, from-1), to+1))
	}
	from, to := s.span()
	q := query.Query{
		Tenant: s.tenant, MinT: from + 1, MaxT: to, Matchers: s.matchers, Warn: warn,
		Resolution: s.Resolution, Columns: s.withStarts(bucketfn.Columns(s.function)),
		Edges: s.AppendCuts(nil, from-1, to+1),
	}
	if !s.IsExact() { // Bounds of the errors need the buckets at the requested edges.
		width := s.Resolution.Width()
		first, _ := s.fragment.window(0)
		_, last := s.fragment.window(s.edges.n - 1)
		q.MinT, q.MaxT = min(q.MinT, bucketfn.FloorTo(first, width)+1), max(q.MaxT, bucketfn.CeilTo(last, width))
		q.Columns |= bucketfn.BoundColumns(s.function)
	}
	return store.Select(ctx, q)
}

// requestedWindows returns the windows that the query requested.
func (s *segment) requestedWindows() bucketfn.Windows {
	return bucketfn.Windows{First: s.edges.first, Step: s.edges.step, Steps: s.Windows.Steps, Span: s.fragment.width}
}

// withStarts returns columns and, if the segment uses start timestamps, also the columns of start timestamps.
func (s *segment) withStarts(columns rollup.Columns) rollup.Columns {
	if s.usesStarts {
		columns |= rollup.ColumnStarts
	}
	return columns
}

// span returns the outermost edges of all windows.
func (s *segment) span() (from, to int64) {
	from, _ = s.Windows.Window(0)
	_, to = s.Windows.Window(s.Windows.Steps - 1)
	return from, to
}

// openAllColumns finds the segment's series with all columns from which samples can be made. Buckets are split at the
// given edges (see query.Query.Edges). Buckets that contain other window edges are returned whole.
func (s *segment) openAllColumns(
	ctx context.Context, store *storage.Store, warn func(error), edges []int64,
) ([]*query.SelectedSeries, error) {
	from, _ := s.fragment.window(0)
	_, to := s.fragment.window(s.edges.n - 1)
	columns := expand.CutColumns
	if s.Sketched {
		columns |= rollup.ColumnSketches
	}
	return store.Select(ctx, query.Query{
		Tenant: s.tenant, MinT: bucketfn.FloorTo(from, s.Resolution.Width()) + 1,
		MaxT:     bucketfn.CeilTo(to, s.Resolution.Width()),
		Matchers: s.matchers, Warn: warn, Resolution: s.Resolution, Columns: s.withStarts(columns), Edges: edges,
	})
}

// joinSegments joins the series of the segments, in the order in which they were found.
func joinSegments(lists [][]*query.SelectedSeries) []foundSeries {
	if len(lists) == 1 {
		all := make([]foundSeries, len(lists[0]))
		for i, s := range lists[0] {
			all[i] = foundSeries{labels: s.Labels, segments: lists[0][i : i+1 : i+1]}
		}
		return all
	}
	var all []foundSeries
	at := map[string]int{}
	var key []byte
	for segment, list := range lists {
		for _, s := range list {
			key = s.Labels.Bytes(key)
			i, ok := at[string(key)]
			if !ok {
				i = len(all)
				at[string(key)] = i
				all = append(all, foundSeries{labels: s.Labels, segments: make([]*query.SelectedSeries, len(lists))})
			}
			all[i].segments[segment] = s
		}
	}
	return all
}

// resolutionParams holds a query's parameters for choosing resolutions.
type resolutionParams struct {
	mode     resolution.Mode
	coarsest rollup.Resolution
	// noSnap is true if windows aren't moved to bucket edges while raw samples exist.
	noSnap bool
}

type resolutionParamsKey struct{}

// WithResolution returns a context that sets the resolution of its queries: raw, 5m, 1h, exact or auto ("" means auto).
// Buckets wider than coarsest milliseconds aren't used; 0 means no bound. It returns an error for an unknown
// resolution.
func WithResolution(ctx context.Context, name string, coarsest int64) (context.Context, error) {
	m, err := resolution.ParseMode(name)
	if err != nil {
		return ctx, err
	}
	how := resolutionParams{mode: m}
	switch {
	case coarsest <= 0:
	case coarsest < rollup.FiveMinutes.Width():
		how.mode = resolution.ModeRaw
	case coarsest < rollup.OneHour.Width():
		how.coarsest = rollup.FiveMinutes
	default:
		how.coarsest = rollup.OneHour
	}
	return context.WithValue(ctx, resolutionParamsKey{}, how), nil
}

func resolutionParamsOf(ctx context.Context) resolutionParams {
	how, _ := ctx.Value(resolutionParamsKey{}).(resolutionParams)
	return how
}
