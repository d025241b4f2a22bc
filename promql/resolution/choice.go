package resolution

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Mode is the value of a query's resolution parameter.
type Mode uint8

const (
	// modeAuto returns exact results where this is cheap. An exact result is expensive if it requires many samples.
	// modeAuto then moves the edges of windows to bucket edges and reads the buckets, if no window is moved by more
	// than a hundredth of its length. In this case it adds an info to the query's annotations.
	modeAuto Mode = iota
	// modeExact returns the results of raw samples while raw samples are kept.
	modeExact
	// ModeRaw reads only raw samples, even for times whose raw samples have expired.
	ModeRaw
	// modeFiveMinutes and ModeOneHour read buckets of that width for all functions that can be computed from buckets.
	// They never read wider buckets.
	modeFiveMinutes
	ModeOneHour
)

var modeNames = [...]string{
	modeAuto: "auto", modeExact: "exact", ModeRaw: "raw", modeFiveMinutes: "5m", ModeOneHour: "1h",
}

// errUnknownMode is returned by ParseMode for an unknown name.
var errUnknownMode = errors.New("promql: unknown resolution")

// ParseMode returns the mode with a name; "" is modeAuto. It returns errUnknownMode for an unknown name.
func ParseMode(name string) (Mode, error) {
	if name == "" {
		return modeAuto, nil
	}
	if i := slices.Index(modeNames[:], name); i >= 0 {
		return Mode(i), nil
	}
	return modeAuto, fmt.Errorf("%w %q; must be raw, 5m, 1h, exact or auto", errUnknownMode, name)
}

// String returns the name that ParseMode accepts.
func (m Mode) String() string { return modeNames[m] }

// Allows reports whether a query may read a resolution. coarsest is the max width of buckets; 0 (Raw) means no limit.
func (m Mode) Allows(res, coarsest rollup.Resolution) bool {
	if m == ModeRaw || m == modeFiveMinutes {
		return res == rollup.Raw || m == modeFiveMinutes && res == rollup.FiveMinutes
	}
	return coarsest == rollup.Raw || res <= coarsest
}

// Request holds the inputs of Choose for one fragment of a query. All times are in milliseconds.
type Request struct {
	// Func is a function over a range vector, or "" for an instant selector.
	Func string
	// Range is the length of each window: the range of a range selector, or the lookback of an instant selector.
	Range int64
	// From, To and Step give the right edges of the windows after offset and @: From, From+Step, … up to To.
	From, To, Step int64
	Mode           Mode
	// NoSnap prevents modeAuto from moving windows. It is set for instant queries, and therefore for rules.
	NoSnap bool
	// Coarsest is the max width of buckets, like Thanos' max_source_resolution. 0 (Raw) means no limit.
	Coarsest rollup.Resolution
	// Boundary is the time of the oldest data that is kept of each resolution: math.MinInt64 if all data is kept,
	// math.MaxInt64 if all data has expired.
	Boundary [3]int64
	// Classes are the retention boundaries of each class of series, if they differ. Boundary then holds the latest
	// boundary of each resolution. nil means that Boundary applies to all series.
	Classes [][3]int64
	// Oldest is the time of the first sample ever written, before which no samples are missing. math.MinInt64 if
	// unknown.
	Oldest int64
	// Recent is a time after which samples are cheap to read, because most of them are unsealed. modeAuto doesn't move
	// right edges after Recent, because moving them would hide series younger than a bucket. 0 means that there is no
	// such time.
	Recent int64
	// Slot is the length of a slot, which is the time range of a raw chunk.
	Slot int64
}

// steps returns the number of windows.
func (r *Request) steps() int {
	if r.Step <= 0 || r.To <= r.From {
		return 1
	}
	return int((r.To-r.From)/r.Step) + 1
}

// rightEdge returns the right edge of the window of step k.
func (r *Request) rightEdge(k int) int64 { return r.From + int64(k)*r.Step }

// Fit is the relation between the windows of a segment and the requested windows.
type Fit uint8

const (
	// FitAligned windows are the requested windows. Either their edges are bucket edges, or raw samples are read.
	FitAligned Fit = iota
	// FitRagged windows are the requested windows. If an edge cuts a bucket, the raw samples of its slot are read.
	FitRagged
	// FitSnapped windows were moved to bucket edges. If a window ends after Request.Recent, only its left edge was
	// moved.
	FitSnapped
	// fitWidened windows were moved and are longer than the requested windows.
	fitWidened
)

// String returns the name in the query statistics.
func (f Fit) String() string {
	return [...]string{FitAligned: "exact", FitRagged: "exact", FitSnapped: "snapped", fitWidened: "widened"}[f]
}

// Segment describes the evaluation of the steps in [FromStep, ToStep).
type Segment struct {
	FromStep, ToStep int
	Resolution       rollup.Resolution
	Fit              Fit
	// Approximate is set if buckets are expanded to samples: all buckets for a function that can't be computed from
	// buckets, otherwise the buckets cut by a ragged edge.
	Approximate bool
	// Sketched is set if buckets are expanded to samples by their sketches. The edges of the windows are then bucket
	// edges.
	Sketched bool
	// Windows are the evaluated windows. The first belongs to FromStep.
	Windows bucketfn.Windows

	newest bool // only right edges matter
}

// Window returns the window that is evaluated for the requested window that ends at b.
func (s Segment) Window(b int64) (from, to int64) {
	w := s.Windows
	w.First = b
	return w.Window(0)
}

// IsExact reports whether the result equals the result that raw samples would have.
func (s Segment) IsExact() bool { return s.Fit <= FitRagged && !s.Approximate }

// Choose chooses a resolution for each step. It returns adjacent segments that cover all steps, and the shortfall: the
// difference between the results and the results of raw samples. It returns ErrRawExpired if raw samples have expired
// and the function requires them. Choose reads no data.
//
//	boundary of 1h     5m             raw
//	   |...............|..............|..........> time
//	   [ 1h, nearest  ][ 5m, nearest ][ the coarsest that is exact, or nearly ]
func Choose(r Request) ([]Segment, Shortfall, error) {
	c := newChoice(r)
	var segments []Segment
	cuts := c.changeSteps()
	for i, from := range cuts[:len(cuts)-1] {
		s, err := c.chooseSegment(from, cuts[i+1])
		if err != nil {
			return nil, Shortfall{}, err
		}
		if n := len(segments); n > 0 && segments[n-1].hasSameWindows(s) {
			segments[n-1].ToStep, segments[n-1].Windows.Steps = s.ToStep, s.ToStep-segments[n-1].FromStep
			continue
		}
		segments = append(segments, s)
	}
	return segments, c.shortfall(segments), nil
}

// hasSameWindows reports whether next is evaluated in the same way as s.
func (s Segment) hasSameWindows(next Segment) bool {
	a, b := s.Windows, next.Windows
	return s.Resolution == next.Resolution && s.Fit == next.Fit && s.Approximate == next.Approximate &&
		s.Sketched == next.Sketched &&
		a.Span == b.Span && a.Snap == b.Snap && a.SnapUntil == b.SnapUntil && a.Scale == b.Scale
}

// choice is the state of Choose.
type choice struct {
	Request
	fn *bucketfn.Function
	// allowed reports, per resolution, whether the request allows it.
	allowed [3]bool
	// classes are the classes of the request, at least one.
	classes []keptClass
	// firstCovered is, per resolution, the first step whose window the resolution covers completely.
	firstCovered [3]int
	// begun is the first step whose window ends after the first sample ever written.
	begun int
}

// keptClass holds the retention boundaries of a class.
type keptClass struct {
	boundary [3]int64
	// oldest is the time of the oldest data that isn't treated as expired, see setClasses.
	oldest int64
}

var resolutions = [...]rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour}

func newChoice(r Request) *choice {
	c := &choice{Request: r, fn: bucketfn.LookupFunction(r.Func)}
	if c.fn == nil {
		c.fn = &bucketfn.Function{Name: r.Func, WithoutRaw: bucketfn.WithoutRawApproximated}
	}
	for _, res := range resolutions {
		c.allowed[res] = c.Mode.Allows(res, c.Coarsest)
	}
	c.setClasses()
	c.begun = sort.Search(r.steps(), func(k int) bool { return r.rightEdge(k) > r.Oldest })
	for _, res := range resolutions {
		c.firstCovered[res] = sort.Search(r.steps(), func(k int) bool { return c.coversStep(res, k) })
	}
	return c
}

// setClasses sets classes. It chooses one common resolution, the allowed resolution for which lostTime is smallest. In
// each class, all times before the class's boundary of this resolution are treated as expired. Without this rule, while
// boundaries are waiting to move, one class may have raw samples of times for which another class only has buckets.
func (c *choice) setClasses() {
	horizons := c.Classes
	if horizons == nil {
		horizons = [][3]int64{c.Boundary}
	}
	common, least := rollup.Raw, math.Inf(1)
	for _, res := range resolutions {
		if !c.allowed[res] {
			continue
		}
		if lost := c.lostTime(horizons, res); lost <= least {
			common, least = res, lost
		}
	}
	for _, h := range horizons {
		c.classes = append(c.classes, keptClass{boundary: h, oldest: max(h[common], c.Oldest)})
	}
}

// lostTime returns the longest time, in milliseconds, for which any class has data at another allowed resolution but
// not at res.
func (c *choice) lostTime(horizons [][3]int64, res rollup.Resolution) (most float64) {
	for _, h := range horizons {
		for _, other := range resolutions {
			if c.allowed[other] {
				most = max(most, float64(h[res])-float64(h[other]))
			}
		}
	}
	return most
}

// coversStep reports whether a resolution covers the window of step k, even if the window is moved and widened. In each
// class, it ignores times before keptClass.oldest.
func (c *choice) coversStep(res rollup.Resolution, k int) bool {
	if !c.allowed[res] {
		return false
	}
	start := c.rightEdge(k) - c.Range
	if width := res.Width(); width > 0 {
		start = bucketfn.FloorTo(c.rightEdge(k), width) - bucketfn.CeilTo(c.Range, width)
	}
	return !slices.ContainsFunc(c.classes, func(k keptClass) bool { return max(start+1, k.oldest) < k.boundary[res] })
}

// changeSteps returns the steps at which the available resolutions change, with the first step and the end, in order.
func (c *choice) changeSteps() []int {
	cuts := []int{0, c.begun, c.steps()}
	for _, res := range resolutions {
		cuts = append(cuts, c.firstCovered[res])
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// chooseSegment returns the segment for steps with the same available resolutions.
func (c *choice) chooseSegment(from, to int) (Segment, error) {
	if to <= c.begun { // No samples were written yet.
		return c.newSegment(rollup.Raw, FitAligned, from, to), nil
	}
	if c.firstCovered[rollup.Raw] <= from {
		return c.chooseWithRaw(from, to), nil
	}
	kept, asked := c.keptResolutions(from)
	finest := kept[len(kept)-1]
	if !c.fn.IsFromBuckets() {
		if c.fn.WithoutRaw == bucketfn.WithoutRawRefused {
			return Segment{}, c.refusal()
		}
		s := c.newSegment(finest, FitAligned, from, to)
		if c.fn.Sketched && kept[0] == rollup.OneHour && c.fitsBuckets(rollup.OneHour, from, to) {
			s.Resolution, s.Sketched = rollup.OneHour, true
		}
		s.Approximate = true
		return s, nil
	}
	if asked {
		return c.nearestSegment(finest, from, to), nil
	}
	for _, res := range kept {
		if c.fitsBuckets(res, from, to) {
			return c.newSegment(res, FitAligned, from, to), nil
		}
	}
	if c.maySnap() {
		for _, res := range kept {
			if s := c.nearestSegment(res, from, to); s.Fit == FitSnapped && c.maxDrift(s) <= c.Range/snapShare {
				return c.keepRecentEdges(s), nil
			}
		}
	}
	s := c.newSegment(finest, FitRagged, from, to)
	s.Approximate = true
	return s, nil
}

// maySnap reports whether windows may be moved slightly although their raw samples exist.
func (c *choice) maySnap() bool { return c.Mode == modeAuto && !c.NoSnap && c.fn.Snaps }

// keptResolutions returns the bucket resolutions that cover all windows from a step on, the coarsest first. If the
// query's mode names one of them, it returns only this resolution, and true.
func (c *choice) keptResolutions(step int) (kept []rollup.Resolution, asked bool) {
	for i := len(rollup.Resolutions) - 1; i >= 0; i-- {
		res := rollup.Resolutions[i]
		if c.firstCovered[res] > step {
			continue
		}
		if c.Mode == modeFiveMinutes && res == rollup.FiveMinutes || c.Mode == ModeOneHour && res == rollup.OneHour {
			return []rollup.Resolution{res}, true
		}
		kept = append(kept, res)
	}
	return kept, false
}

// chooseWithRaw returns the segment for steps with raw samples.
func (c *choice) chooseWithRaw(from, to int) Segment {
	kept, asked := c.keptResolutions(from)
	switch {
	case !c.fn.IsFromBuckets() || len(kept) == 0:
		return c.newSegment(rollup.Raw, FitAligned, from, to)
	case asked:
		return c.nearestSegment(kept[0], from, to)
	}
	best, chunks := c.cheapestSegment(kept, from, to)
	if c.maySnap() && chunks > maxExactChunks {
		least := c.Range/snapShare + 1
		for _, res := range kept { // The coarsest of the resolutions with the min drift.
			if s := c.nearestSegment(res, from, to); s.Fit == FitSnapped && c.maxDrift(s) < least {
				best, least = c.keepRecentEdges(s), c.maxDrift(s)
			}
		}
	}
	return best
}

// snapShare limits the drift of modeAuto: both edges of a window together move by at most Range/snapShare.
const snapShare = 100

// fitsBuckets reports whether the window edges that the function uses are bucket edges.
func (c *choice) fitsBuckets(res rollup.Resolution, from, to int) bool {
	width := res.Width()
	return c.rightEdge(from)%width == 0 && (to-from == 1 || c.Step%width == 0) && (c.fn.Newest || c.Range%width == 0)
}

// newSegment returns a segment of the requested windows.
func (c *choice) newSegment(res rollup.Resolution, e Fit, from, to int) Segment {
	return Segment{
		FromStep: from, ToStep: to, Resolution: res, Fit: e, newest: c.fn.Newest,
		Windows: bucketfn.Windows{First: c.rightEdge(from), Step: c.Step, Steps: to - from, Span: c.Range, Scale: 1},
	}
}

// nearestSegment returns a segment of windows that end at bucket edges and are as near as possible to the requested
// windows. Each window ends with the last bucket that ends in the requested window. Its length is Range, rounded to
// whole buckets: down if that shortens it by less than a tenth, otherwise up. If only right edges matter, it is at
// least one bucket.
func (c *choice) nearestSegment(res rollup.Resolution, from, to int) Segment {
	s, width := c.newSegment(res, FitSnapped, from, to), res.Width()
	if c.fitsBuckets(res, from, to) {
		s.Fit = FitAligned
		return s
	}
	switch floor := bucketfn.FloorTo(c.Range, width); {
	case c.fn.Newest:
		s.Windows.Span = max(c.Range, width)
	case floor > 0 && c.Range-floor < c.Range/10:
		s.Windows.Span = floor
	default:
		s.Windows.Span = bucketfn.CeilTo(c.Range, width)
	}
	s.Windows.Snap = width
	if s.Windows.Span > c.Range {
		s.Fit = fitWidened
		if c.fn.Grows {
			s.Windows.Scale = float64(c.Range) / float64(s.Windows.Span)
		}
	}
	return s
}

// keepRecentEdges returns a snapped segment that doesn't move the right edges of windows after Request.Recent.
func (c *choice) keepRecentEdges(s Segment) Segment {
	s.Windows.SnapUntil = c.Recent
	return s
}

// maxDrift returns the max difference between a segment's windows and the requested windows, in milliseconds. The
// difference of a window is the sum of the differences of its two edges.
func (c *choice) maxDrift(s Segment) int64 {
	most := int64(0)
	// The positions of edges within buckets repeat after width/gcd(Step, width) steps.
	steps := s.ToStep - s.FromStep
	if width := s.Resolution.Width(); c.Step > 0 {
		steps = min(steps, int(width/gcd(c.Step, width)))
	}
	for k := s.FromStep; k < s.FromStep+steps; k++ {
		right := c.rightEdge(k)
		a, b := s.Window(right)
		start := right - c.Range - a
		most = max(most, right-b+max(start, -start))
	}
	return most
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
