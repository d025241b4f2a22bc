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

// ReadWorkers is how many scans a query has under way at once: enough to hide a network's latency, few
// enough that one query doesn't take the whole engine.
const ReadWorkers = 16

// rowReader reads rows for a query, within its budget. Rows that can't be read are named, counted, given to the query's caller as warnings, and left
// out.
type rowReader struct {
	*Querier

	tenant string

	budget meter.ReadBudget
	warnMu sync.Mutex
	warn   func(error)
	told   map[string]bool // the gaps that warn was called for
}

// request is what one query carries through the read path. Each step takes what the one before it has found:
//
//	windowFinder ─► windows with their slots ─► seriesFinder ─► series with their places ─► selection ─► chunks
type request struct {
	*rowReader

	matchers []*labels.Matcher
	// hidden are the horizons of the tenant's classes, and classes those that were asked for. gaps are ranges of time of which 1h rollups
	// may be missing, and in a query for buckets raw rows: there each slot is answered from samples or from rollups.
	hidden  []retention.Hidden
	gaps    retention.Gaps
	classes uint64
	// days has the classes of unsealed series.
	days retention.DayLists
	// minT and maxT bound the times, milliseconds; nothing is seen if minT > maxT.
	minT, maxT int64
	// startsFrom is the time after which samples have their start timestamps, milliseconds.
	startsFrom int64
	// deletes are those that touch that range.
	deletes format.Tombstones
}

// newReader returns a reader for a query of a tenant; warn, if it isn't nil, is called for rows that can't be read.
func (q *Querier) newReader(ctx context.Context, tenant string, warn func(error)) *rowReader {
	use := q.env.Limiter.Use(ctx, tenant)
	return &rowReader{Querier: q, tenant: tenant, budget: meter.ReadBudget{Limit: q.env.QueryBytes, Use: use}, warn: warn, told: map[string]bool{}}
}

func (q *Querier) newRequest(ctx context.Context, query Query) (*request, error) {
	shown, err := q.env.Retention.Shown(ctx, query.Tenant, query.MinT, query.MaxT, query.Resolution != rollup.Raw || query.overGaps)
	if err != nil {
		return nil, err
	}
	if query.LabelsOnly {
		query.Resolution = rollup.OneHour
	}
	r := &request{
		rowReader: q.newReader(ctx, query.Tenant, query.Warn),
		matchers:  query.Matchers, hidden: shown.Hidden, gaps: shown.Gaps, classes: query.Classes, days: shown.Days,
		maxT: min(query.MaxT, format.MaxTime), // The clock sets no limit: it may have been set back since samples were acknowledged.
	}
	r.startsFrom = q.startsFrom(ctx, query.Tenant)
	if r.classes == 0 {
		r.classes = math.MaxUint64
	}
	r.minT = max(query.MinT, r.earliest(query.Resolution)+1, -format.MaxTime)
	if query.Resolution == rollup.OneHour {
		for _, e := range r.gaps.Errors(r.classes, r.minT, r.maxT) {
			r.tell(e)
		}
	}
	if query.LabelsOnly {
		r.shorten(shown.Later.Add(r.env.MaxAhead).UnixMilli())
	}
	return r, nil
}

// openRequest returns a request that has its deletes, once queries can be answered; nil: nothing is to be read, because of the error or of the times.
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
	r.tellStaged()
	if err := r.loadTombstones(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// loadTombstones finds the deletes that the request applies, and brings the head up to date. It comes before anything is read.
func (r *request) loadTombstones(ctx context.Context) error {
	all, err := r.env.Deletes(ctx, r.tenant)
	if err != nil {
		return err
	}
	x := index.NewMatching(ctx)
	r.deletes = all.Where(func(d *format.Tombstone) bool {
		return d.Touches(r.minT-1-format.DayMS, r.maxT+format.DayMS) && !disjoint(&x, d.Matchers, r.matchers)
	})
	return ctx.Err()
}

// oneMetric returns the name that the matchers ask for by equality; it is "" if they contradict each other,
// or ask for series without a name, of which there are none.
func (r *request) oneMetric() (name string, ok bool) {
	if name, ok = format.EqualName(r.matchers); ok && !format.MatchesName(r.matchers, name) {
		name = ""
	}
	return name, ok
}

// tellStaged warns of stage rows that can't be read and may hold samples of the request.
func (r *request) tellStaged() {
	for _, err := range r.env.Damage.Staged(r.minT, r.maxT) {
		r.tell(err)
	}
}

// tellKeptGaps warns of gaps of cached results that may concern the request.
func (r *request) tellKeptGaps() {
	for _, e := range r.env.Damage.Kept() {
		name, one := r.oneMetric()
		if e.Tenant != "" && e.Tenant != r.tenant || one && e.Metric != "" && e.Metric != name {
			continue
		}
		if e.From.IsZero() || e.From.UnixMilli() < r.maxT && e.To.UnixMilli() >= r.minT {
			r.tellGap(e)
		}
	}
}

// shorten limits a request for labels to the range that the tenant may query and warns of it. The range ends at until, or with the request if
// that is earlier; later times stay in the request.
func (r *request) shorten(until int64) {
	longest := r.budget.Use.Longest()
	until = min(until, r.maxT)
	if longest == 0 || until-r.minT <= longest.Milliseconds() {
		return
	}
	r.minT = until - longest.Milliseconds()
	r.tell(fmt.Errorf("limit %s of tenant %q: only series since %s are listed",
		tenant.KeyQueryRange, r.tenant, time.UnixMilli(r.minT).UTC().Format(time.RFC3339)))
}

// disjoint reports whether no series matches both, as far as the labels show that either demands to be equal to something.
func disjoint(x *index.Matching, a, b []*labels.Matcher) bool {
	return contradict(x, a, b) || contradict(x, b, a)
}

// contradict reports whether one of the first demands a value that one of the others refuses.
func contradict(x *index.Matching, demand, others []*labels.Matcher) bool {
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

// newBudget is for a load that several queries may wait for; ctx is that of the query which loads.
func (r *rowReader) newBudget(ctx context.Context) *meter.ReadBudget {
	return meter.NewLoad(ctx, r.env.QueryBytes)
}

// tell gives the query's caller a warning.
func (r *rowReader) tell(err error) {
	if r.warn == nil {
		return
	}
	r.warnMu.Lock()
	defer r.warnMu.Unlock()
	r.warn(err)
}

// corrupt counts and logs a corrupt row, and warns of it.
func (r *rowReader) corrupt(err *damage.CorruptRowError) {
	r.env.Damage.Corrupt(err.Table, err)
	r.tell(err)
}

// Scan yields the rows of a partition to row, which must keep copies. Rows that can't be read are warned of, and left out.
func (r *rowReader) Scan(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
	if rows.Damaged == nil {
		rows.Damaged = func(d engine.Damage) { r.missed(&rows, d) }
	}
	return EachRow(rows.Table, r.env.Rows.Scan(ctx, rows), row)
}

// EachRow calls row with each row that is read of a table, until it returns an error.
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

// chunks yields the rows of chunks that are wanted to row, as Scan does. whole is false if rows were left out.
func (r *rowReader) chunks(ctx context.Context, w paged.Wanted, row func(engine.Row) error) (whole bool, err error) {
	rows := w.Range()
	whole = true
	w.Damaged = func(d engine.Damage) {
		whole = false
		r.missed(&rows, d)
	}
	err = EachRow(w.Table, r.env.Rows.Chunks(ctx, w), row)
	return whole, err
}

// leaveOut removes the histograms with which no query can compute, and warns of them.
func (r *rowReader) leaveOut(of labels.Labels, samples *chunk.Samples) {
	var first error
	n := len(samples.H)
	samples.H = slices.DeleteFunc(samples.H, func(h chunk.Histogram) bool {
		err := h.Computable()
		if err != nil && first == nil {
			first = fmt.Errorf("at %s: %w", time.UnixMilli(h.T).UTC().Format(time.RFC3339), err)
		}
		return err != nil
	})
	if first != nil {
		r.tell(fmt.Errorf("storage: skipped %d native histograms of %s that queries can't evaluate; the first one: %w",
			n-len(samples.H), of, first))
	}
}

// hiddenIn returns the newest timestamp that a class no longer keeps at a resolution, milliseconds.
func (r *request) hiddenIn(class int64, res rollup.Resolution) int64 {
	if class < int64(len(r.hidden)) {
		return r.hidden[class].At[res]
	}
	return r.env.Retention.Past(r.tenant, class, res) // It was added meanwhile.
}

// earliest and latest return the newest timestamp that no class keeps any more, and that one of them doesn't.
func (r *request) earliest(res rollup.Resolution) int64 {
	return slices.MinFunc(r.hidden, func(a, b retention.Hidden) int { return cmp.Compare(a.At[res], b.At[res]) }).At[res]
}

func (r *request) latest(res rollup.Resolution) int64 {
	return slices.MaxFunc(r.hidden, func(a, b retention.Hidden) int { return cmp.Compare(a.At[res], b.At[res]) }).At[res]
}

// shows reports whether anything of a class is to be seen in a window.
func (r *request) shows(class int64, window int64) bool {
	res, end := format.ResolutionOf(window), r.env.Period.WindowEnd(window)
	return r.classes&(1<<class) != 0 && end > r.hiddenIn(class, res) && !r.gaps.Hold(class, res, end)
}

// lacksRaw reports whether samples of some class may be lacking in a slot.
func (r *request) lacksRaw(slot int64) bool {
	if r.env.Period.SlotStart(slot) < r.latest(rollup.Raw) {
		return true
	}
	return r.gaps.HoldAny(r.env.Period.SlotEnd(slot))
}

// visible returns those of the positions whose series are in a class of which the window shows anything.
func (r *request) visible(w *sealedWindow, m *metricSeries, positions []uint32) []uint32 {
	if m.places == nil {
		if !r.shows(retention.DefaultClass, w.window) {
			return nil
		}
		return positions
	}
	var kept []uint32
	for i, p := range positions {
		switch {
		case !r.shows(m.places[p].Class(), w.window):
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

// sourceOf returns the source of a metric in one of its places.
func (r *request) sourceOf(w windowMetric, at format.ClassShard) source {
	class := at.Class()
	return source{
		window: w.window, metric: w.metric, place: at, class: class,
		hidden: r.hiddenIn(class, format.ResolutionOf(w.window.window)), hiddenRaw: r.hiddenIn(class, rollup.Raw),
	}
}

// hasSamples reports whether a slot's samples answer as well as its rollups: it has marks of raw rows, or is of a time from which
// none are lacking. A seal that was cut short may have left rollups there with marks of their own.
func (r *request) hasSamples(sums map[int64]uint64, slot int64) bool {
	_, ok := sums[slot]
	return ok || !r.lacksRaw(slot)
}

// maxTold bounds how many gaps a query is warned of one by one.
const maxTold = 50

// missed counts and logs rows of a scan that can't be read, and warns of them.
func (r *rowReader) missed(rows *engine.Range, d engine.Damage) {
	r.tellGap(r.env.Damage.NoteRows(rows, d))
}

// tellOnce gives the query's caller a warning, once.
func (r *rowReader) tellOnce(err error) {
	r.warnMu.Lock()
	told := r.told[err.Error()]
	r.told[err.Error()] = true
	r.warnMu.Unlock()
	if !told {
		r.tell(err)
	}
}

// tellGap warns of each gap once.
func (r *rowReader) tellGap(e *damage.DamagedRowsError) {
	what := e.What()
	r.warnMu.Lock()
	told := r.told[what] || len(r.told) > maxTold
	if !told {
		r.told[what] = true
	}
	more := len(r.told) > maxTold
	r.warnMu.Unlock()
	if more {
		e = e.Anything()
	}
	if !told {
		r.tell(e)
	}
}
