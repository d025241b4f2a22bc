package query

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/tenant"
)

// ReadWorkers is the number of concurrent scans of a query. It is large enough to hide the latency of a network, and
// small enough that one query doesn't use the whole engine.
const ReadWorkers = 16

// rowReader reads rows for a query, within the query's budget. Unreadable rows are skipped, logged and counted, and
// reported to the query's caller as warnings.
type rowReader struct {
	*Querier

	tenant string

	budget meter.ReadBudget
	warnMu sync.Mutex
	warn   func(error)
	told   map[string]bool // gaps and other warnings that were reported and must not be reported again
}

// request is the state of one query. Each step of the query uses the result of the previous step:
//
//	windowFinder ─► windows with their slots ─► seriesFinder ─► series with their places ─► selection ─► chunks
type request struct {
	*rowReader

	matchers []*labels.Matcher
	// hidden holds the retention boundaries of the tenant's classes. classes are the requested classes. gaps are ranges
	// of time in which 1h rollups may be missing. In a query for buckets, gaps also cover missing raw rows, because the
	// source of buckets, samples or rollups, is selected per slot.
	hidden  []retention.HiddenTimes
	gaps    retention.Gaps
	classes uint64
	// days holds the lists of classes by day, which determine the classes of unsealed series.
	days retention.DayLists
	// minT and maxT are the first and last time of the request, in milliseconds. The result is empty if minT > maxT.
	minT, maxT int64
	// startsFrom is the time, in milliseconds, after which samples have start timestamps.
	startsFrom int64
	// deletes are the deletes that touch the range from minT to maxT.
	deletes format.Tombstones
}

// newReader returns a reader for a query of a tenant. If warn isn't nil, it is called for unreadable rows.
func (q *Querier) newReader(ctx context.Context, tenant string, warn func(error)) *rowReader {
	use := q.env.Limiter.Use(ctx, tenant)
	return &rowReader{
		Querier: q, tenant: tenant, budget: meter.ReadBudget{Limit: q.env.QueryBytes, Use: use}, warn: warn,
		told: map[string]bool{},
	}
}

func (q *Querier) newRequest(ctx context.Context, query Query) (*request, error) {
	shown, err := q.env.Retention.VisibleRows(
		ctx, query.Tenant, query.MinT, query.MaxT, query.Resolution != rollup.Raw || query.overGaps,
	)
	if err != nil {
		return nil, err
	}
	if query.LabelsOnly {
		query.Resolution = rollup.OneHour
	}
	r := &request{
		rowReader: q.newReader(ctx, query.Tenant, query.Warn),
		matchers:  query.Matchers, hidden: shown.Hidden, gaps: shown.Gaps, classes: query.Classes, days: shown.Days,
		// The current time isn't a limit, because the clock may have been set back since a sample was acknowledged.
		maxT: min(query.MaxT, format.MaxTime),
	}
	r.startsFrom = q.startsFrom(ctx, query.Tenant)
	if r.classes == 0 {
		r.classes = math.MaxUint64
	}
	r.minT = max(query.MinT, r.minHidden(query.Resolution)+1, -format.MaxTime)
	if query.Resolution == rollup.OneHour {
		for _, e := range r.gaps.Errors(r.classes, r.minT, r.maxT) {
			r.reportWarning(e)
		}
	}
	if query.LabelsOnly {
		r.limitRange(shown.Later.Add(r.env.MaxAhead).UnixMilli())
	}
	return r, nil
}

// openRequest returns a request with its deletes, or an error if the store can't answer queries yet. The request is nil
// if the range is empty or if an error occurred.
func (q *Querier) openRequest(ctx context.Context, query Query) (*request, error) {
	if err := q.env.Ready(); err != nil {
		return nil, err
	}
	r, err := q.newRequest(ctx, query)
	if err != nil {
		return nil, err
	}
	if r.minT > r.maxT {
		return nil, ctx.Err()
	}
	r.warnUnreadableStaged()
	if err := r.loadTombstones(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// loadTombstones reads the deletes that apply to the request, and brings the head up to date. It must be called before
// any rows are read.
func (r *request) loadTombstones(ctx context.Context) error {
	all, err := r.env.Deletes(ctx, r.tenant)
	if err != nil {
		return err
	}
	if unread := r.env.UnreadDelete(r.tenant); unread != nil {
		r.reportWarning(unread)
	}
	x := index.NewMatching(ctx)
	r.deletes = all.Filter(func(d *format.Tombstone) bool {
		return d.Touches(r.minT-1-format.DayMS, r.maxT+format.DayMS) && !areDisjoint(&x, d.Matchers, r.matchers)
	})
	return ctx.Err()
}

// oneMetric returns the metric name that the matchers require, if there is one. The name is "" if no series can match:
// the matchers contradict each other or require an empty name.
func (r *request) oneMetric() (name string, ok bool) {
	if name, ok = format.EqualName(r.matchers); ok && !format.MatchesName(r.matchers, name) {
		name = ""
	}
	return name, ok
}

// warnUnreadableStaged reports warnings for unreadable stage rows that may contain samples of the request.
func (r *request) warnUnreadableStaged() {
	for _, err := range r.env.Damage.StagedErrors(r.minT, r.maxT) {
		r.reportWarning(err)
	}
}

// warnCachedGaps reports warnings for gaps in cached results that may affect the request.
func (r *request) warnCachedGaps() {
	for _, e := range r.env.Damage.MissingRows() {
		name, one := r.oneMetric()
		if e.Tenant != "" && e.Tenant != r.tenant || one && e.Metric != "" && e.Metric != name {
			continue
		}
		if e.From.IsZero() || e.From.UnixMilli() < r.maxT && e.To.UnixMilli() >= r.minT {
			r.reportGap(e)
		}
	}
}

// limitRange limits a request for labels to the longest range that the tenant may query. If the request is longer,
// limitRange raises its start and reports a warning. It doesn't change the end of the request, but times after until
// don't count towards the length.
func (r *request) limitRange(until int64) {
	longest := r.budget.Use.MaxRange()
	until = min(until, r.maxT)
	if longest == 0 || until-r.minT <= longest.Milliseconds() {
		return
	}
	r.minT = until - longest.Milliseconds()
	r.reportWarning(fmt.Errorf("limit %s of tenant %q: only series since %s are listed",
		tenant.KeyQueryRange, r.tenant, time.UnixMilli(r.minT).UTC().Format(time.RFC3339)))
}

// areDisjoint reports whether no series can match both sets of matchers. It only considers equality matchers, so it may
// return false even if no series matches both.
func areDisjoint(x *index.Matching, a, b []*labels.Matcher) bool {
	return isContradicted(x, a, b) || isContradicted(x, b, a)
}

// isContradicted reports whether a matcher in demand requires a value that a matcher in others rejects.
func isContradicted(x *index.Matching, demand, others []*labels.Matcher) bool {
	for _, m := range demand {
		if m.Type != labels.MatchEqual {
			continue
		}
		for _, o := range others {
			if o.Name == m.Name && !x.Matches(o, m.Value) {
				return true
			}
		}
	}
	return false
}

// newBudget returns the budget of a load whose result other queries may also wait for. ctx is the context of the query
// that runs the load.
func (r *rowReader) newBudget(ctx context.Context) *meter.ReadBudget {
	return meter.NewLoad(ctx, r.env.QueryBytes)
}

// reportWarning passes a warning to the query's caller.
func (r *rowReader) reportWarning(err error) {
	if r.warn == nil {
		return
	}
	r.warnMu.Lock()
	defer r.warnMu.Unlock()
	r.warn(err)
}

// reportCorrupt counts and logs a corrupt row, and reports it as a warning.
func (r *rowReader) reportCorrupt(err *damage.CorruptRowError) {
	r.env.Damage.RecordCorruptRow(err.Table, err)
	r.reportWarning(err)
}

// Scan calls row for each row of a range. The callback must copy a row to retain it. Unreadable rows are skipped and
// reported as warnings.
func (r *rowReader) Scan(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
	if rows.Damaged == nil {
		rows.Damaged = func(d engine.Damage) { r.reportMissed(&rows, d) }
	}
	return EachRow(rows.Table, r.env.Rows.Scan(ctx, rows), row)
}

// EachRow calls row for each row read from a table, until row returns an error.
func EachRow(t *engine.Table, rows iter.Seq2[engine.Row, error], row func(engine.Row) error) error {
	for read, err := range rows {
		if err != nil {
			return fmt.Errorf("storage: reading table %s: %w", t, err)
		}
		if err := row(read); err != nil {
			return err
		}
	}
	return nil
}

// chunks calls row for each of the wanted rows of chunks, like Scan. whole is false if unreadable rows were skipped.
func (r *rowReader) chunks(ctx context.Context, w paged.Wanted, row func(engine.Row) error) (whole bool, err error) {
	rows := w.Range()
	whole = true
	w.Damaged = func(d engine.Damage) {
		whole = false
		r.reportMissed(&rows, d)
	}
	err = EachRow(w.Table, r.env.Rows.Chunks(ctx, w), row)
	return whole, err
}

// removeInvalidHistograms removes histograms that queries can't process, and reports a warning if there are any.
func (r *rowReader) removeInvalidHistograms(of labels.Labels, samples *chunk.Samples) {
	var first error
	n := len(samples.H)
	samples.H = slices.DeleteFunc(samples.H, func(h chunk.Histogram) bool {
		err := h.CheckComputable()
		if err != nil && first == nil {
			first = fmt.Errorf("at %s: %w", time.UnixMilli(h.T).UTC().Format(time.RFC3339), err)
		}
		return err != nil
	})
	if first != nil {
		r.reportWarning(
			fmt.Errorf("storage: skipped %d native histograms of %s that queries can't evaluate; the first one: %w",
				n-len(samples.H), of, first),
		)
	}
}

// hiddenUntil returns the newest timestamp, in milliseconds, that is hidden in a class at a resolution.
func (r *request) hiddenUntil(class int64, res rollup.Resolution) int64 {
	if class < int64(len(r.hidden)) {
		return r.hidden[class].At[res]
	}
	return r.env.Retention.PastRetention(r.tenant, class, res) // The class was added during the query.
}

// minHidden returns the newest timestamp that is hidden in all classes.
func (r *request) minHidden(res rollup.Resolution) int64 {
	return slices.MinFunc(r.hidden, func(a, b retention.HiddenTimes) int { return cmp.Compare(a.At[res], b.At[res]) }).
		At[res]
}

// maxHidden returns the newest timestamp that is hidden in any class.
func (r *request) maxHidden(res rollup.Resolution) int64 {
	return slices.MaxFunc(r.hidden, func(a, b retention.HiddenTimes) int { return cmp.Compare(a.At[res], b.At[res]) }).
		At[res]
}

// isClassVisible reports whether any row of a class in a window is visible.
func (r *request) isClassVisible(class int64, window int64) bool {
	res, end := format.ResolutionOf(window), r.env.Period.WindowEnd(window)
	return r.classes&(1<<class) != 0 && end > r.hiddenUntil(class, res) && !r.gaps.Contains(class, res, end)
}

// mayMissRaw reports whether raw samples of any class may be missing in a slot.
func (r *request) mayMissRaw(slot int64) bool {
	if r.env.Period.SlotStart(slot) < r.maxHidden(rollup.Raw) {
		return true
	}
	return r.gaps.ContainsAny(r.env.Period.SlotEnd(slot))
}

// visiblePositions returns the positions of those series whose classes have visible rows in the window.
func (r *request) visiblePositions(w *sealedWindow, m *metricSeries, positions []uint32) []uint32 {
	if m.places == nil {
		if !r.isClassVisible(retention.DefaultClass, w.window) {
			return nil
		}
		return positions
	}
	var kept []uint32
	for i, p := range positions {
		switch {
		case !r.isClassVisible(m.places[p].Class(), w.window):
			if kept == nil {
				kept = append(make([]uint32, 0, len(positions)), positions[:i]...)
			}
		case kept != nil:
			kept = append(kept, p)
		}
	}
	if kept != nil {
		return kept
	}
	return positions
}

// sourceOf returns the source for a metric in one of its places in a window.
func (r *request) sourceOf(w windowMetric, at format.ClassShard) source {
	class := at.Class()
	return source{
		window: w.window, metric: w.metric, place: at, class: class,
		hidden: r.hiddenUntil(class, format.ResolutionOf(w.window.window)), hiddenRaw: r.hiddenUntil(class, rollup.Raw),
	}
}

// hasSamples reports whether the buckets of a slot can be computed from samples instead of being read from rollups:
// either the slot has raw commit records, or no raw samples of its time are hidden or missing. Without this check a
// slot would lose its data if an interrupted seal has written only the commit records of rollups.
func (r *request) hasSamples(sums map[int64]uint64, slot int64) bool {
	_, ok := sums[slot]
	return ok || !r.mayMissRaw(slot)
}

// maxReportedGaps is the maximum number of gaps that are reported to a query individually.
const maxReportedGaps = 50

// reportMissed counts and logs unreadable rows of a scan, and reports them as a warning.
func (r *rowReader) reportMissed(rows *engine.Range, d engine.Damage) {
	r.reportGap(r.env.Damage.RecordRows(rows, d))
}

// reportWarningOnce passes a warning to the query's caller, unless it has already passed the same warning.
func (r *rowReader) reportWarningOnce(err error) {
	r.warnMu.Lock()
	told := r.told[err.Error()]
	r.told[err.Error()] = true
	r.warnMu.Unlock()
	if !told {
		r.reportWarning(err)
	}
}

// reportGap reports a warning for each gap once, for at most maxReportedGaps gaps. One additional warning reports that
// any other rows may be missing.
func (r *rowReader) reportGap(e *damage.DamagedRowsError) {
	what := e.Description()
	r.warnMu.Lock()
	told := r.told[what] || len(r.told) > maxReportedGaps
	if !told {
		r.told[what] = true
	}
	more := len(r.told) > maxReportedGaps
	r.warnMu.Unlock()
	if more {
		e = e.AnyRows()
	}
	if !told {
		r.reportWarning(e)
	}
}
