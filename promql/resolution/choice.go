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

// Mode is the resolution that a query asks for with ?resolution=.
type Mode uint8

const (
	// ModeAuto answers exactly. If that would read many samples, and windows fit buckets but for a hundredth of their
	// length, it reads these buckets instead, and the query gets an info.
	ModeAuto Mode = iota
	// ModeExact answers as raw samples do, as long as these are kept.
	ModeExact
	// ModeRaw reads raw samples, even for times whose raw samples are gone.
	ModeRaw
	// ModeFiveMinutes and ModeOneHour read buckets of that width, and none that are wider, for all functions that can be computed from buckets.
	ModeFiveMinutes
	ModeOneHour
)

var modeNames = [...]string{ModeAuto: "auto", ModeExact: "exact", ModeRaw: "raw", ModeFiveMinutes: "5m", ModeOneHour: "1h"}

// ErrMode is returned by ParseMode for an unknown name.
var ErrMode = errors.New("promql: unknown resolution")

// ParseMode returns the mode of that name; "" is ModeAuto. It returns ErrMode for any other name.
func ParseMode(name string) (Mode, error) {
	if name == "" {
		return ModeAuto, nil
	}
	if i := slices.Index(modeNames[:], name); i >= 0 {
		return Mode(i), nil
	}
	return ModeAuto, fmt.Errorf("%w %q; must be raw, 5m, 1h, exact or auto", ErrMode, name)
}

// String returns the name that ParseMode reads.
func (m Mode) String() string { return modeNames[m] }

// Allows reports whether a query may read a resolution. coarsest bounds the width of buckets; 0 (Raw) means that there is no bound.
func (m Mode) Allows(res, coarsest rollup.Resolution) bool {
	if m == ModeRaw || m == ModeFiveMinutes {
		return res == rollup.Raw || m == ModeFiveMinutes && res == rollup.FiveMinutes
	}
	return coarsest == rollup.Raw || res <= coarsest
}

// Request holds everything that Choose depends on, for one fragment of a query. All times are milliseconds.
type Request struct {
	// Func is a function over a range vector, or "" for an instant selector.
	Func string
	// Range is the length of each window: the range of a range selector, or the lookback of an instant selector.
	Range int64
	// From, To and Step give the right edges of the windows after offset and @: From, From+Step, … up to To.
	From, To, Step int64
	Mode           Mode
	// Still forbids to move windows unasked. It is set for instant queries, and so for rules.
	Still bool
	// Coarsest bounds the width of buckets, as Thanos' max_source_resolution does. 0 (Raw) means that there is no bound.
	Coarsest rollup.Resolution
	// Horizon is the oldest time kept of each resolution: math.MinInt64 if all is kept, math.MaxInt64 if nothing is.
	Horizon [3]int64
	// Classes are the horizons of each class of series, if these have different retention. Horizon then has the latest
	// of each resolution. nil means that Horizon is that of all series.
	Classes [][3]int64
	// Oldest is the time of the first sample that was ever written, so that nothing is missing before it;
	// math.MinInt64 if it is unknown.
	Oldest int64
	// Recent is a time after which samples are cheap to read since most are unsealed: windows that end later aren't moved to an earlier
	// end unasked, which would hide a series that is younger than a bucket. 0: there is no such time.
	Recent int64
	// Slot is the length of the slot that a raw chunk covers.
	Slot int64
}

// steps returns the number of windows.
func (r *Request) steps() int {
	if r.Step <= 0 || r.To <= r.From {
		return 1
	}
	return int((r.To-r.From)/r.Step) + 1
}

// right returns the right edge of the window of step k.
func (r *Request) right(k int) int64 { return r.From + int64(k)*r.Step }

// Fit is how the windows of a segment relate to the windows that were asked for.
type Fit uint8

const (
	// Aligned windows are those that were asked for. Their edges are edges of buckets, or raw samples are read.
	Aligned Fit = iota
	// Ragged windows are those that were asked for. If an edge cuts a bucket, the raw samples of its slot are read.
	Ragged
	// Snapped windows were moved to the edges of buckets, those that end after Request.Recent by their left edge only.
	Snapped
	// Widened windows were moved, and are longer than those that were asked for.
	Widened
)

// String returns the name that users see in the statistics of a query.
func (f Fit) String() string {
	return [...]string{Aligned: "exact", Ragged: "exact", Snapped: "snapped", Widened: "widened"}[f]
}

// Segment describes how the steps from FromStep to before ToStep are answered.
type Segment struct {
	FromStep, ToStep int
	Resolution       rollup.Resolution
	Fit              Fit
	// Approximate is set if samples are made of buckets: of all buckets for a function that can't be computed from
	// buckets, otherwise of those that a ragged edge cuts.
	Approximate bool
	// Sketched is set if these samples are those of sketches: of buckets that fit the windows.
	Sketched bool
	// Windows are the windows to evaluate. The first is that of FromStep.
	Windows bucketfn.Windows

	newest bool // only right edges matter
}

// Window returns the window that is evaluated instead of the one that ends at b.
func (s Segment) Window(b int64) (from, to int64) {
	w := s.Windows
	w.First = b
	return w.Window(0)
}

// IsExact returns true if the answer is the one that raw samples give.
func (s Segment) IsExact() bool { return s.Fit <= Ragged && !s.Approximate }

// Choose decides which resolution answers which steps. It returns adjacent segments that cover all steps, and the
// shortfall: how the answer differs from that of raw samples. It returns ErrRawGone if raw samples are gone and the
// function can't be answered without them. Choose reads no data.
//
//	horizon of 1h      5m             raw
//	   |...............|..............|..........> time
//	   [ 1h, nearest  ][ 5m, nearest ][ the coarsest that is exact, or nearly ]
func Choose(r Request) ([]Segment, Shortfall, error) {
	c := newChoice(r)
	var segments []Segment
	cuts := c.cuts()
	for i, from := range cuts[:len(cuts)-1] {
		s, err := c.piece(from, cuts[i+1])
		if err != nil {
			return nil, Shortfall{}, err
		}
		if n := len(segments); n > 0 && segments[n-1].continues(s) {
			segments[n-1].ToStep, segments[n-1].Windows.Steps = s.ToStep, s.ToStep-segments[n-1].FromStep
			continue
		}
		segments = append(segments, s)
	}
	return segments, c.shortfall(segments), nil
}

// continues reports whether next is answered as s is.
func (s Segment) continues(next Segment) bool {
	a, b := s.Windows, next.Windows
	return s.Resolution == next.Resolution && s.Fit == next.Fit && s.Approximate == next.Approximate && s.Sketched == next.Sketched &&
		a.Span == b.Span && a.Snap == b.Snap && a.SnapUntil == b.SnapUntil && a.Scale == b.Scale
}

// choice is a choice under way.
type choice struct {
	Request
	fn *bucketfn.Function
	// allowed are the resolutions that the request allows.
	allowed [3]bool
	// classes are those of the request, at least one.
	classes []keptClass
	// whole is the first step of which a resolution has all of the window.
	whole [3]int
	// begun is the first step whose window ends after anything ever came.
	begun int
}

// keptClass is until when series of a class are kept.
type keptClass struct {
	horizon [3]int64
	// oldest is the oldest time that counts as kept, see keep.
	oldest int64
}

var resolutions = [...]rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour}

func newChoice(r Request) *choice {
	c := &choice{Request: r, fn: bucketfn.Lookup(r.Func)}
	if c.fn == nil {
		c.fn = &bucketfn.Function{Name: r.Func, WithoutRaw: bucketfn.Approximated}
	}
	for _, res := range resolutions {
		c.allowed[res] = c.Mode.Allows(res, c.Coarsest)
	}
	c.keep()
	c.begun = sort.Search(r.steps(), func(k int) bool { return r.right(k) > r.Oldest })
	for _, res := range resolutions {
		c.whole[res] = sort.Search(r.steps(), func(k int) bool { return c.has(res, k) })
	}
	return c
}

// keep notes until when classes are kept. None counts as kept before what it has of one resolution: while horizons wait to be moved, a class
// may have raw samples of times of which another has buckets alone. It is the resolution by which the classes lose least.
func (c *choice) keep() {
	horizons := c.Classes
	if horizons == nil {
		horizons = [][3]int64{c.Horizon}
	}
	common, least := rollup.Raw, math.Inf(1)
	for _, res := range resolutions {
		if !c.allowed[res] {
			continue
		}
		if lost := c.lost(horizons, res); lost <= least {
			common, least = res, lost
		}
	}
	for _, h := range horizons {
		c.classes = append(c.classes, keptClass{horizon: h, oldest: max(h[common], c.Oldest)})
	}
}

// lost is for how long at most a class is kept in another of the allowed resolutions before it is kept in this one.
func (c *choice) lost(horizons [][3]int64, res rollup.Resolution) (most float64) {
	for _, h := range horizons {
		for _, other := range resolutions {
			if c.allowed[other] {
				most = max(most, float64(h[res])-float64(h[other]))
			}
		}
	}
	return most
}

// has reports whether a resolution has all of the window of step k, of each class as far as any has, even if it is
// moved and widened.
func (c *choice) has(res rollup.Resolution, k int) bool {
	if !c.allowed[res] {
		return false
	}
	start := c.right(k) - c.Range
	if width := res.Width(); width > 0 {
		start = bucketfn.FloorTo(c.right(k), width) - bucketfn.CeilTo(c.Range, width)
	}
	return !slices.ContainsFunc(c.classes, func(k keptClass) bool { return max(start+1, k.oldest) < k.horizon[res] })
}

// cuts returns the steps where the resolutions that are kept change, with the first and the end.
func (c *choice) cuts() []int {
	cuts := []int{0, c.begun, c.steps()}
	for _, res := range resolutions {
		cuts = append(cuts, c.whole[res])
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// piece chooses for steps over which the same is kept.
func (c *choice) piece(from, to int) (Segment, error) {
	if to <= c.begun { // There is nothing.
		return c.segment(rollup.Raw, Aligned, from, to), nil
	}
	if c.whole[rollup.Raw] <= from {
		return c.pieceWithRaw(from, to), nil
	}
	kept, asked := c.bucketsKept(from)
	finest := kept[len(kept)-1]
	if !c.fn.FromBuckets() {
		if c.fn.WithoutRaw == bucketfn.Refused {
			return Segment{}, c.refusal()
		}
		s := c.segment(finest, Aligned, from, to)
		if c.fn.Sketched && kept[0] == rollup.OneHour && c.fits(rollup.OneHour, from, to) {
			s.Resolution, s.Sketched = rollup.OneHour, true
		}
		s.Approximate = true
		return s, nil
	}
	if asked {
		return c.nearest(finest, from, to), nil
	}
	for _, res := range kept {
		if c.fits(res, from, to) {
			return c.segment(res, Aligned, from, to), nil
		}
	}
	if c.maySnap() {
		for _, res := range kept {
			if s := c.nearest(res, from, to); s.Fit == Snapped && c.drifts(s) <= c.Range/snapShare {
				return c.keepRecent(s), nil
			}
		}
	}
	s := c.segment(finest, Ragged, from, to)
	s.Approximate = true
	return s, nil
}

// maySnap reports whether windows may be moved by a little, unasked.
func (c *choice) maySnap() bool { return c.Mode == ModeAuto && !c.Still && c.fn.Snaps }

// bucketsKept returns the resolutions of buckets that have all windows from this step on, the coarsest first.
// Where the query asks for one of them, and it is kept, it is the only one.
func (c *choice) bucketsKept(step int) (kept []rollup.Resolution, asked bool) {
	for i := len(rollup.Resolutions) - 1; i >= 0; i-- {
		res := rollup.Resolutions[i]
		if c.whole[res] > step {
			continue
		}
		if c.Mode == ModeFiveMinutes && res == rollup.FiveMinutes || c.Mode == ModeOneHour && res == rollup.OneHour {
			return []rollup.Resolution{res}, true
		}
		kept = append(kept, res)
	}
	return kept, false
}

// pieceWithRaw chooses where raw samples are there.
func (c *choice) pieceWithRaw(from, to int) Segment {
	kept, asked := c.bucketsKept(from)
	switch {
	case !c.fn.FromBuckets() || len(kept) == 0:
		return c.segment(rollup.Raw, Aligned, from, to)
	case asked:
		return c.nearest(kept[0], from, to)
	}
	best, chunks := c.cheapest(kept, from, to)
	if c.maySnap() && chunks > manyChunks {
		least := c.Range/snapShare + 1
		for _, res := range kept { // The coarsest of those that move them least.
			if s := c.nearest(res, from, to); s.Fit == Snapped && c.drifts(s) < least {
				best, least = c.keepRecent(s), c.drifts(s)
			}
		}
	}
	return best
}

// snapShare is the share of a range by which the edges of its windows may be moved in all, so as not to read samples.
const snapShare = 100

// fits reports whether the windows' edges, as far as they matter, are edges of buckets.
func (c *choice) fits(res rollup.Resolution, from, to int) bool {
	width := res.Width()
	return c.right(from)%width == 0 && (to-from == 1 || c.Step%width == 0) && (c.fn.Newest || c.Range%width == 0)
}

// segment returns a segment of the windows asked for.
func (c *choice) segment(res rollup.Resolution, e Fit, from, to int) Segment {
	return Segment{
		FromStep: from, ToStep: to, Resolution: res, Fit: e, newest: c.fn.Newest,
		Windows: bucketfn.Windows{First: c.right(from), Step: c.Step, Steps: to - from, Span: c.Range, Scale: 1},
	}
}

// nearest returns a segment of the windows that buckets have instead: each ends with the last bucket that ends in
// the window asked for, and is as long as buckets allow, if need be longer.
func (c *choice) nearest(res rollup.Resolution, from, to int) Segment {
	s, width := c.segment(res, Snapped, from, to), res.Width()
	if c.fits(res, from, to) {
		s.Fit = Aligned
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
		s.Fit = Widened
		if c.fn.Grows {
			s.Windows.Scale = float64(c.Range) / float64(s.Windows.Span)
		}
	}
	return s
}

// keepRecent returns a snapped segment that leaves the right edges of recent windows where they are.
func (c *choice) keepRecent(s Segment) Segment {
	s.Windows.SnapUntil = c.Recent
	return s
}

// drifts returns by how much a segment's windows differ at most from those asked for, both ends together.
func (c *choice) drifts(s Segment) int64 {
	most := int64(0)
	// Edges lie to buckets as they did some steps ago: it is enough to look that far.
	steps := s.ToStep - s.FromStep
	if width := s.Resolution.Width(); c.Step > 0 {
		steps = min(steps, int(width/gcd(c.Step, width)))
	}
	for k := s.FromStep; k < s.FromStep+steps; k++ {
		right := c.right(k)
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
