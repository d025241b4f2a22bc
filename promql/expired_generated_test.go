package promql

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestExpiredAnswersAreWithinTheirInfos compares generated queries over a store whose samples have expired with the
// same queries before the samples expired. If windows start and end at bucket edges, or there is no info, the answers
// must be equal (1e-12). Otherwise they must be within the bounds of the info. If windows fit buckets, there must be no
// info. While samples exist, resolution=auto is checked in the same way. Each query is answered in one of these ways:
//
//	           │ raw expired: 5m, 1h │ 5m also expired │ nothing expired
//	planner    │                     │                 │ auto, exact
//	evaluator  │      one tenant, and two tenants at once
//	delayed    │
//	starts     │
func TestExpiredAnswersAreWithinTheirInfos(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	c := newBoundedContest(t, rand.New(rand.NewPCG(seed, 31)))
	queries := soak.Amount(t, 600, 100_000)
	failed := 0
	for n := 0; n < queries && failed < 5; n++ {
		q := c.query()
		if why := c.judge(q); why != "" {
			failed++
			t.Errorf("%s: %s", q, why)
		}
	}
	t.Logf("%d queries: %v", queries, c.outcomes)
	for what, least := range map[string]int{
		"equal, on buckets": 12, "equal, samples are there": 10, "within the info": 6, "equal, moved": 400,
		"within the info, moved": 100,
	} {
		require.Greater(t, c.outcomes[what], queries/least/10, what)
	}
}

// boundedWays are the ways in which queries are answered.
var boundedWays = []string{"planner", "planner", "evaluator", "delayed", "starts"}

type boundedContest struct {
	*boundedStores
	t        *testing.T
	r        *rand.Rand
	engines  map[string][2]*Engine // with a planner (except evaluator), and without
	outcomes map[string]int
}

func newBoundedContest(t *testing.T, r *rand.Rand) *boundedContest {
	c := &boundedContest{boundedStores: newBoundedStores(t, r), t: t, r: r, engines: map[string][2]*Engine{},
		outcomes: map[string]int{}}
	for _, way := range boundedWays {
		o := DefaultOptions()
		o.Parser, o.DelayedNameRemoval, o.StartTimestamps = allSyntax, way == "delayed", way == "starts"
		o.NoPlanner = way == "evaluator"
		subject := NewEngine(o)
		o.NoPlanner = true
		reference := NewEngine(o)
		c.engines[way] = [2]*Engine{subject, reference}
	}
	t.Cleanup(func() {
		for _, e := range c.engines {
			require.NoError(t, e[0].Close())
			require.NoError(t, e[1].Close())
		}
	})
	return c
}

// boundedQuery is a query and its parameters.
type boundedQuery struct {
	asked
	way, mode, tenants string
	metric, fn, over   string // metric, function, and over: the aggregation; "": none
	width, offset      int64
	kept               bool // it reads the store that has all samples
}

func (q boundedQuery) String() string {
	return fmt.Sprintf("%s, of %s by way of the %s, resolution=%s, of the store that has all: %v", q.asked, q.tenants,
		q.way, q.mode, q.kept)
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

var (
	gaugeFunctions = []string{
		"", "", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "last_over_time",
		"first_over_time",
		"present_over_time", "delta", "changes", "quantile_over_time", "stddev_over_time", "stdvar_over_time",
		"mad_over_time", "deriv",
		"predict_linear", "timestamp", "ts_of_first_over_time", "ts_of_last_over_time", "absent", "absent_over_time",
		"limitk",
		"ts_of_max_over_time", "ts_of_min_over_time", "delta anchored", "delta smoothed", "changes anchored",
		"selector smoothed",
	}
	counterFunctions = []string{
		"rate", "rate", "rate", "increase", "increase", "resets", "changes", "irate", "", "max_over_time",
		"increase anchored", "increase smoothed", "info",
		"rate anchored", "rate smoothed", "resets anchored", "changes anchored",
		"deriv", "predict_linear", "stddev_over_time", "stdvar_over_time", "quantile_over_time", "mad_over_time",
	}
	histogramFunctions = []string{"histogram_count(rate)", "histogram_count(increase)"}
	movingFunctions    = []string{"rate", "increase", "avg_over_time", "max_over_time", "min_over_time",
		"sum_over_time", "count_over_time", "changes", "delta", "last_over_time", ""}
)

func (c *boundedContest) query() boundedQuery {
	r := c.r
	q := boundedQuery{way: oneOf(r, boundedWays...), mode: oneOf(r, "auto", "exact"), tenants: oneOf(r, "ta", "ta|tb"),
		over: oneOf(r, "", "", "", "sum", "avg", "max", "count by (i)", "sum by (i)")}
	if r.IntN(12) == 0 {
		return c.moving(q)
	}
	q.metric = oneOf(r, "g", "g", "c", "c", "s", "j", "b", "h", "n_total")
	switch q.metric {
	case "c", "s", "n_total":
		q.fn = oneOf(r, counterFunctions...)
	case "h":
		q.fn = oneOf(r, histogramFunctions...)
	default:
		q.fn = oneOf(r, gaugeFunctions...)
	}
	if strings.HasPrefix(q.fn, "absent") || q.fn == "limitk" {
		q.over = ""
	}
	q.width = oneOf(r, hour, hour, 2*hour, 6*hour, 5*minute, 30*minute, 10*minute, 17*minute, day, hour+15*second)
	if q.metric == "s" {
		q.width = max(q.width, 30*minute)
	}
	q.start = c.now - day*(1+r.Int64N(8)) + r.Int64N(day/1000)*1000
	q.step = time.Duration(oneOf(r, hour, hour, 2*hour, 5*minute, 5*minute, minute, 7*minute, 15*minute, second,
		13*second, 6*hour, day, 7*day)) * time.Millisecond
	if r.IntN(2) == 0 {
		q.start, q.width = bucketfn.FloorTo(q.start, hour), bucketfn.CeilTo(q.width, hour)
		q.step = oneOf(r, time.Hour, time.Hour, 2*time.Hour, 24*time.Hour, 7*24*time.Hour)
	}
	if r.IntN(5) == 0 {
		q.offset = oneOf(r, hour, hour, 5*minute, 33*second)
	}
	if r.IntN(5) > 0 {
		q.end = q.start + q.step.Milliseconds()*(1+r.Int64N(8))
	}
	return c.written(q)
}

// moving returns a query that reads enough samples for windows to be moved although the samples exist.
func (c *boundedContest) moving(q boundedQuery) boundedQuery {
	q.way, q.kept, q.mode = "planner", true, "auto"
	q.metric, q.fn = oneOf(c.r, "g", "j"), oneOf(c.r, movingFunctions[2:]...)
	if c.r.IntN(2) == 0 {
		q.metric, q.fn = "c", oneOf(c.r, movingFunctions...)
	}
	q.width = oneOf(c.r, hour+15*second, hour+15*second, 2*hour+minute, 6*hour+minute, day, day)
	q.start = c.now - 9*day + oneOf(c.r, 0, 0, 2*minute, 31*minute, 61*second)
	q.step = oneOf(c.r, time.Hour, 2*time.Hour)
	q.end = c.now - c.r.Int64N(4)*day
	return c.written(q)
}

// written returns the query with its text.
func (c *boundedContest) written(q boundedQuery) boundedQuery {
	selector, width := q.metric, fmt.Sprintf("[%ds]", q.width/1000)
	offset := ""
	if q.offset > 0 {
		offset = fmt.Sprintf(" offset %ds", q.offset/1000)
	}
	ranged := selector + width + offset
	switch q.fn {
	case "":
		q.text = selector + offset
	case "selector smoothed":
		q.text = selector + " smoothed" + offset
	case "timestamp", "absent":
		q.text = q.fn + "(" + selector + offset + ")"
	case "limitk":
		q.text = "limitk(100, " + selector + offset + ")"
	case "info":
		q.text = "info(rate(" + ranged + "))"
	case "quantile_over_time":
		q.text = "quantile_over_time(0.9, " + ranged + ")"
	case "predict_linear":
		q.text = "predict_linear(" + ranged + ", 60)"
	case "increase anchored", "increase smoothed", "rate anchored", "rate smoothed", "delta anchored", "delta smoothed",
		"changes anchored", "resets anchored":
		name, modifier, _ := strings.Cut(q.fn, " ")
		q.text = name + "(" + selector + width + " " + modifier + offset + ")"
	case "histogram_count(rate)", "histogram_count(increase)":
		q.text = strings.Replace(q.fn, ")", "("+ranged+"))", 1)
	default:
		q.text = q.fn + "(" + ranged + ")"
	}
	switch q.fn {
	case "", "timestamp", "absent", "limitk", "selector smoothed":
		q.width = 5 * minute
	}
	if q.over != "" {
		q.text = q.over + "(" + q.text + ")"
	}
	return q
}

// judge describes the error of an answer, or returns "" if it is correct.
func (c *boundedContest) judge(q boundedQuery) string {
	ctx := tenant.NewContext(c.t.Context(), q.tenants)
	asking, err := WithResolution(ctx, q.mode, 0)
	require.NoError(c.t, err)
	e := c.engines[q.way]
	want, _, err := q.ask(ctx, e[1], NewQueryable(c.whole))
	require.NoError(c.t, err, q.text)
	store := c.aged
	if q.kept {
		store = c.whole
	}
	got, _, err := q.ask(asking, e[0], NewQueryable(store))
	require.NoError(c.t, err, q.text)
	if want.err != got.err {
		return fmt.Sprintf("error %q, not %q", got.err, want.err)
	}
	info, others := statedBy(c.t, got.notes)
	if !info.told && !slices.Equal(others, want.notes) {
		return fmt.Sprintf("annotations %q, not %q", others, want.notes)
	}
	if why := c.mayTell(q, info); why != "" {
		return fmt.Sprintf("%s; %q", why, got.notes)
	}
	off := false
	for k, at := range q.times() {
		why, different := c.judgeStep(q, info, at, valuesIn(want.rows, at), valuesIn(got.rows, at))
		if why != "" {
			return fmt.Sprintf("step %d, at %s: %s; %q", k, time.UnixMilli(at).UTC().Format(time.RFC3339), why,
				got.notes)
		}
		off = off || different
	}
	c.count(q, info, off)
	return ""
}

func (c *boundedContest) count(q boundedQuery, info stated, off bool) {
	what := "equal"
	if off {
		what = "within the info"
	} else if info.told {
		what = "equal, with an info"
	}
	switch {
	case q.kept:
		what += ", moved"
	case !c.expired(q):
		what += ", samples are there"
	case c.onBuckets(q):
		what += ", on buckets"
	}
	c.outcomes[what]++
}

func (q boundedQuery) times() []int64 {
	if q.end == 0 {
		return []int64{q.start}
	}
	var all []int64
	for t := q.start; t <= q.end; t += q.step.Milliseconds() {
		all = append(all, t)
	}
	return all
}

// exactly reports whether buckets answer the query exactly if windows start and end at bucket edges.
func (q boundedQuery) exactly() bool {
	switch q.fn {
	case "timestamp", "absent", "absent_over_time", "limitk", "info", "histogram_count(rate)",
		"histogram_count(increase)":
		return true
	case "stddev_over_time", "stdvar_over_time", "deriv", "predict_linear":
		// The deviations of samples made from buckets differ from the original ones. The rollups of counters that are
		// read by name have only sums.
		return q.planned() && q.metric != "n_total"
	}
	if q.extended() {
		return true
	}
	return bucketfn.LookupFunction(q.fn).IsFromBuckets()
}

// extended reports whether the query reads samples before or after its windows.
func (q boundedQuery) extended() bool {
	return strings.HasSuffix(q.fn, " anchored") || strings.HasSuffix(q.fn, " smoothed")
}

// planned reports whether the planner answers the whole query.
func (q boundedQuery) planned() bool {
	switch q.fn {
	case "timestamp", "absent_over_time", "info":
		return false
	case "histogram_count(rate)", "histogram_count(increase)":
		// If the step is wider than the window, the evaluator answers the query, because of the hints of counter
		// resets.
		if q.step.Milliseconds() > q.width {
			return false
		}
	}
	return q.way == "planner" && !q.extended()
}

// widthAt returns the width of the buckets that answer a time, or 0 if raw samples exist.
func (c *boundedContest) widthAt(from int64) int64 {
	switch {
	case from >= c.now-2*day:
		return 0
	case from >= c.now-6*day:
		return rollup.FiveMinutes.Width()
	default:
		return rollup.OneHour.Width()
	}
}

// expired reports whether samples of any window of a query have expired. The evaluator reads all windows at once.
func (c *boundedContest) expired(q boundedQuery) bool {
	return !q.kept && c.widthAt(q.start-q.offset-q.width-q.reach()) > 0
}

// reach returns the time before and after its windows in which the query reads samples.
func (q boundedQuery) reach() int64 {
	if q.extended() {
		return 5 * minute
	}
	return 0
}

// onBuckets reports whether the windows of all steps start and end at edges of the buckets that exist for the oldest
// window.
func (c *boundedContest) onBuckets(q boundedQuery) bool {
	width := c.widthAt(q.start - q.offset - q.width)
	if width == 0 || q.kept {
		return false
	}
	at, step := q.start-q.offset, q.step.Milliseconds()
	return at%width == 0 && (q.end == 0 || step%width == 0) &&
		(bucketfn.LookupFunction(q.fn) != nil && bucketfn.LookupFunction(q.fn).Newest || q.width%width == 0)
}

// mayTell describes an info that must not exist, because all values are exact. It returns "" if the info is correct.
func (c *boundedContest) mayTell(q boundedQuery, info stated) string {
	switch {
	case !info.told:
	case !q.kept && !c.expired(q) && (info.snapped == 0 || q.mode != "auto"):
		// In mode auto, infos about moved windows are expected.
		return "an info, though all samples are there"
	case q.planned() && q.exactly() && c.onBuckets(q):
		return fmt.Sprintf("an info, though windows lie on buckets: %+v", info)
	}
	return ""
}

// valueKey identifies a series of an answer.
func valueKey(s promengine.Series) string { return s.Metric.Get("i") + "/" + s.Metric.Get(tenantLabel) }

func valuesIn(rows promengine.Matrix, at int64) map[string]float64 {
	all := map[string]float64{}
	for _, s := range rows {
		for _, p := range s.Floats {
			if p.T == at {
				all[valueKey(s)] = p.F
			}
		}
	}
	return all
}

// judgeStep describes a value at a step that differs from the expected value by more than its bound, or returns "" if
// there is none. off is true if any value differs from the expected value.
func (c *boundedContest) judgeStep(q boundedQuery, info stated,
	at int64, want, got map[string]float64) (why string, off bool) {
	if maps.Equal(want, got) {
		return "", false
	}
	to := at - q.offset
	from := to - q.width
	bounds := c.bounds(q, info, from, to)
	for key := range maps.Keys(want) {
		b := bounds[key]
		v, ok := got[key]
		switch {
		case !ok && !b.unsure:
			return fmt.Sprintf("no value of %s, which is %v", key, want[key]), true
		case !ok:
			off = true
			continue
		}
		d := math.Abs(v - want[key])
		if v == want[key] || math.IsNaN(v) && math.IsNaN(want[key]) ||
			d <= tolerance*max(b.largest, math.Abs(want[key])) {
			continue
		}
		off = true
		if !(d <= b.off*(1+1e-9)) && !b.unsure {
			return fmt.Sprintf("%s is %v and not %v: off by %v, and not by %v at most", key, v, want[key], d, b.off),
				true
		}
	}
	for key, v := range got {
		if _, ok := want[key]; !ok {
			if off = true; !bounds[key].unsure {
				return fmt.Sprintf("%s is %v, where there is none", key, v), true
			}
		}
	}
	return "", off
}

// bound is the max error of a value.
type bound struct {
	off     float64
	largest float64 // the largest value that enters the computation
	unsure  bool    // whether there is a value isn't determined
	n       float64
}

// bounds returns the bounds of the values at a step, by series of the answer.
func (c *boundedContest) bounds(q boundedQuery, info stated, from, to int64) map[string]bound {
	all := map[string]bound{}
	touched := info.touches(from-q.reach(), to+q.reach())
	zones := info.zones(from, to)
	for _, s := range c.series {
		if s.name != q.metric || !slices.Contains(strings.Split(q.tenants, "|"), s.tenant) {
			continue
		}
		v := s.view(from, to, zones)
		v.moving = info.moved+info.snapped > 0
		b := bound{largest: v.all.largest() * float64(max(1, v.window.n)), n: 1}
		if at := to + q.offset; q.fn == "deriv" || q.fn == "predict_linear" {
			// Lines through samples that are close together, and far from the time of the prediction, round more.
			b.largest = max(b.largest, s.points(from, to).MaxMagnitude(q.fn, float64(max(at-from, to-at))/1000+60))
		}
		if touched && (len(zones) > 0 || info.made && !q.exactly()) {
			fn := strings.Replace(q.fn, "info", "rate", 1)
			if len(zones) == 0 && !v.moving {
				v.buckets = s.buckets(from, to, info.width)
			}
			b.off = s.offBy(fn, v, q.width, to+q.offset)
			b.unsure = s.wobbly && v.inner.n < 3
		}
		if v.window.n == 0 && !s.wobbly && (q.reach() == 0 || q.fn == "selector smoothed") { // Not in the answer.
			b = bound{}
		}
		if strings.HasPrefix(q.fn, "absent") {
			all["/"] = bound{}
			continue
		}
		key := c.keyOf(q, s)
		all[key] = all[key].and(b, q.over)
	}
	for key, b := range all {
		if strings.HasPrefix(q.over, "avg") && b.n > 0 && !b.unsure {
			b.off /= b.n
			all[key] = b
		}
	}
	return all
}

// and returns the bound of the aggregate of two values with the bounds b and other.
func (b bound) and(other bound, over string) bound {
	b.largest, b.unsure, b.n = b.largest+other.largest, b.unsure || other.unsure, b.n+other.n
	switch {
	case strings.HasPrefix(over, "count"):
		b.off = 0
	case over == "max":
		b.off = max(b.off, other.off)
	default:
		b.off += other.off
	}
	return b
}

// keyOf returns the key of the series of an answer to which a stored series contributes.
func (c *boundedContest) keyOf(q boundedQuery, s *boundedSeries) string {
	key := ""
	if q.over == "" || strings.HasSuffix(q.over, "by (i)") {
		key = s.i
	}
	key += "/"
	if q.over == "" && strings.Contains(q.tenants, "|") {
		key += s.tenant
	}
	return key
}
