package promql

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/cassia-db/cassia/storage/rollup"
)

// mode is what a query asks for as ?resolution=.
type mode uint8

const (
	// modeAuto: exact, and where that would read much and windows fit buckets but for a hundredth, those, with an info.
	modeAuto mode = iota
	// modeExact: what raw samples give, as long as they are there.
	modeExact
	// modeRaw: raw samples, also where they are gone.
	modeRaw
	// modeFiveMinutes and modeOneHour: buckets of that width, for all that they can answer.
	modeFiveMinutes
	modeOneHour
)

var modeNames = [...]string{modeAuto: "auto", modeExact: "exact", modeRaw: "raw", modeFiveMinutes: "5m", modeOneHour: "1h"}

// errMode is what parseMode returns.
var errMode = errors.New("promql: unknown resolution")

// parseMode reads a mode by its name; "" is modeAuto.
func parseMode(name string) (mode, error) {
	if name == "" {
		return modeAuto, nil
	}
	if i := slices.Index(modeNames[:], name); i >= 0 {
		return mode(i), nil
	}
	return modeAuto, fmt.Errorf("%w %q: it is one of raw, 5m, 1h, exact, auto", errMode, name)
}

func (m mode) String() string { return modeNames[m] }

// request is what the choice of resolutions depends on, for one part of a query. All times are milliseconds.
type request struct {
	// Func is a function over a range vector, or "" for an instant selector.
	Func string
	// Range is how long each window is; for an instant selector, the lookback.
	Range int64
	// From, To and Step are the right edges of the windows, after offset and @: From, From+Step, … up to To.
	From, To, Step int64
	Mode           mode
	// Still says that windows are never moved unasked: an instant query's, which rules are, too.
	Still bool
	// Coarsest bounds the buckets' width, as Thanos' max_source_resolution does; 0 (Raw): nothing does.
	Coarsest rollup.Resolution
	// Horizon is the oldest time kept of each resolution; math.MinInt64: all of it is; math.MaxInt64: none.
	Horizon [3]int64
	// Classes are the same of each class of series, where they are kept differently: Horizon has the latest of each
	// resolution. nil: it is that of all.
	Classes [][3]int64
	// Oldest is the time of the first sample that ever came, as far as known; before it nothing is missed.
	// math.MinInt64: unknown.
	Oldest int64
	// Slot is how long the span of a raw chunk is.
	Slot int64
}

// steps returns the number of windows.
func (r *request) steps() int {
	if r.Step <= 0 || r.To <= r.From {
		return 1
	}
	return int((r.To-r.From)/r.Step) + 1
}

// right returns the right edge of the window of step k.
func (r *request) right(k int) int64 { return r.From + int64(k)*r.Step }

// edges is how the windows of a segment lie to those asked for.
type edges uint8

const (
	// onEdges: the windows asked for; their edges are those of buckets, or the samples are read.
	onEdges edges = iota
	// ragged: the windows asked for; where an edge cuts a bucket, that slot's raw samples are read.
	ragged
	// snapped: moved to the edges of buckets.
	snapped
	// widened: moved, and longer than asked for.
	widened
)

func (e edges) String() string {
	return [...]string{onEdges: "exact", ragged: "exact", snapped: "snapped", widened: "widened"}[e]
}

// segment is how the steps from FromStep to before ToStep are answered.
type segment struct {
	FromStep, ToStep int
	Resolution       rollup.Resolution
	Edges            edges
	// Approximate says that samples are made of buckets: of each, for Prometheus' function where buckets don't say what it
	// needs; else, with ragged edges, of those that an edge cuts.
	Approximate bool
	// Windows are those to evaluate, the first being that of FromStep.
	Windows windows

	newest bool // only right edges matter
}

// window returns the window that is evaluated in place of the one that ends at b.
func (s segment) window(b int64) (from, to int64) {
	w := s.Windows
	w.First = b
	return w.window(0)
}

// isExact says whether the answer is that of raw samples.
func (s segment) isExact() bool { return s.Edges <= ragged && !s.Approximate }

// choose says which resolution answers which steps: segments that follow one another and cover them all. It is
// pure. What the answer lacks for want of raw samples is in the shortfall. errRawGone says that there is none.
//
//	horizon of 1h      5m             raw
//	   |...............|..............|..........> time
//	   [ 1h, nearest  ][ 5m, nearest ][ the coarsest that is exact, or nearly ]
func choose(r request) ([]segment, shortfall, error) {
	c := newChoice(r)
	var segments []segment
	cuts := c.cuts()
	for i, from := range cuts[:len(cuts)-1] {
		s, err := c.piece(from, cuts[i+1])
		if err != nil {
			return nil, shortfall{}, err
		}
		if n := len(segments); n > 0 && segments[n-1].continues(s) {
			segments[n-1].ToStep, segments[n-1].Windows.Steps = s.ToStep, s.ToStep-segments[n-1].FromStep
			continue
		}
		segments = append(segments, s)
	}
	return segments, c.shortfall(segments), nil
}

// continues says whether next is answered as s is.
func (s segment) continues(next segment) bool {
	a, b := s.Windows, next.Windows
	return s.Resolution == next.Resolution && s.Edges == next.Edges && s.Approximate == next.Approximate &&
		a.Span == b.Span && a.Snap == b.Snap && a.Scale == b.Scale
}

// choice is a choice under way.
type choice struct {
	request
	fn *function
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
	// oldest is the oldest time kept in any of the allowed resolutions.
	oldest int64
}

var resolutions = [...]rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour}

func newChoice(r request) *choice {
	c := &choice{request: r, fn: functionOf(r.Func)}
	if c.fn == nil {
		c.fn = &function{name: r.Func, withoutRaw: approximated}
	}
	for _, res := range resolutions {
		c.allowed[res] = c.allows(res)
	}
	horizons := r.Classes
	if horizons == nil {
		horizons = [][3]int64{r.Horizon}
	}
	for _, h := range horizons {
		k := keptClass{horizon: h, oldest: math.MaxInt64}
		for _, res := range resolutions {
			if c.allowed[res] {
				k.oldest = min(k.oldest, h[res])
			}
		}
		k.oldest = max(k.oldest, r.Oldest)
		c.classes = append(c.classes, k)
	}
	c.begun = sort.Search(r.steps(), func(k int) bool { return r.right(k) > r.Oldest })
	for _, res := range resolutions {
		c.whole[res] = sort.Search(r.steps(), func(k int) bool { return c.has(res, k) })
	}
	return c
}

func (c *choice) allows(res rollup.Resolution) bool {
	switch {
	case res == rollup.Raw:
		return true
	case c.Mode == modeRaw:
		return false
	default:
		return c.Coarsest == rollup.Raw || res <= c.Coarsest
	}
}

// has says whether a resolution has all of the window of step k, of each class as far as any has, even if it is
// moved and widened.
func (c *choice) has(res rollup.Resolution, k int) bool {
	if !c.allowed[res] {
		return false
	}
	start := c.right(k) - c.Range
	if width := res.Width(); width > 0 {
		start = floorTo(c.right(k), width) - ceilTo(c.Range, width)
	}
	return !slices.ContainsFunc(c.classes, func(k keptClass) bool { return max(start+1, k.oldest) < k.horizon[res] })
}

// ceilTo returns the least multiple of width that isn't less than t.
func ceilTo(t, width int64) int64 { return -floorTo(-t, width) }

// cuts returns the steps where what is kept changes, with the first and the end.
func (c *choice) cuts() []int {
	cuts := []int{0, c.begun, c.steps()}
	for _, res := range resolutions {
		cuts = append(cuts, c.whole[res])
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// piece chooses for steps over which the same is kept.
func (c *choice) piece(from, to int) (segment, error) {
	if to <= c.begun { // There is nothing.
		return c.segment(rollup.Raw, onEdges, from, to), nil
	}
	if c.whole[rollup.Raw] <= from {
		return c.pieceWithRaw(from, to), nil
	}
	kept, asked := c.bucketsKept(from)
	finest := kept[len(kept)-1]
	if c.fn.over == nil {
		if c.fn.withoutRaw == refused {
			return segment{}, c.refusal()
		}
		s := c.segment(finest, onEdges, from, to)
		s.Approximate = true
		return s, nil
	}
	if asked {
		return c.nearest(finest, from, to), nil
	}
	for _, res := range kept {
		if c.fits(res, from, to) {
			return c.segment(res, onEdges, from, to), nil
		}
	}
	if c.maySnap() {
		for _, res := range kept {
			if s := c.nearest(res, from, to); s.Edges == snapped && c.drifts(s) <= c.Range/snapShare {
				return s, nil
			}
		}
	}
	s := c.segment(finest, ragged, from, to)
	s.Approximate = true
	return s, nil
}

// maySnap says whether windows may be moved by a little, unasked.
func (c *choice) maySnap() bool { return c.Mode == modeAuto && !c.Still && c.fn.snaps }

// bucketsKept returns the resolutions of buckets that have all windows from this step on, the coarsest first.
// Where the query asks for one of them, and it is kept, it is the only one.
func (c *choice) bucketsKept(step int) (kept []rollup.Resolution, asked bool) {
	for i := len(rollup.Resolutions) - 1; i >= 0; i-- {
		res := rollup.Resolutions[i]
		if c.whole[res] > step {
			continue
		}
		if c.Mode == modeFiveMinutes && res == rollup.FiveMinutes || c.Mode == modeOneHour && res == rollup.OneHour {
			return []rollup.Resolution{res}, true
		}
		kept = append(kept, res)
	}
	return kept, false
}

// pieceWithRaw chooses where raw samples are there.
func (c *choice) pieceWithRaw(from, to int) segment {
	kept, asked := c.bucketsKept(from)
	switch {
	case c.fn.over == nil || len(kept) == 0:
		return c.segment(rollup.Raw, onEdges, from, to)
	case asked:
		return c.nearest(kept[0], from, to)
	}
	best, chunks := c.cheapest(kept, from, to)
	if c.maySnap() && chunks > manyChunks {
		least := c.Range/snapShare + 1
		for _, res := range kept { // The coarsest of those that move them least.
			if s := c.nearest(res, from, to); s.Edges == snapped && c.drifts(s) < least {
				best, least = s, c.drifts(s)
			}
		}
	}
	return best
}

// snapShare is the share of a range by which the edges of its windows may be moved in all, so as not to read samples.
const snapShare = 100

// fits says whether the windows' edges, as far as they matter, are edges of buckets.
func (c *choice) fits(res rollup.Resolution, from, to int) bool {
	width := res.Width()
	return c.right(from)%width == 0 && (to-from == 1 || c.Step%width == 0) && (c.fn.newest || c.Range%width == 0)
}

// segment returns a segment of the windows asked for.
func (c *choice) segment(res rollup.Resolution, e edges, from, to int) segment {
	return segment{
		FromStep: from, ToStep: to, Resolution: res, Edges: e, newest: c.fn.newest,
		Windows: windows{First: c.right(from), Step: c.Step, Steps: to - from, Span: c.Range, Scale: 1},
	}
}

// nearest returns a segment of the windows that buckets have instead: each ends with the last bucket that ends in
// the window asked for, and is as long as buckets allow, if need be longer.
func (c *choice) nearest(res rollup.Resolution, from, to int) segment {
	s, width := c.segment(res, snapped, from, to), res.Width()
	if c.fits(res, from, to) {
		s.Edges = onEdges
		return s
	}
	switch floor := floorTo(c.Range, width); {
	case c.fn.newest:
		s.Windows.Span = max(c.Range, width)
	case floor > 0 && c.Range-floor < c.Range/10:
		s.Windows.Span = floor
	default:
		s.Windows.Span = ceilTo(c.Range, width)
	}
	s.Windows.Snap = width
	if s.Windows.Span > c.Range {
		s.Edges = widened
		if c.fn.grows {
			s.Windows.Scale = float64(c.Range) / float64(s.Windows.Span)
		}
	}
	return s
}

// drifts returns by how much a segment's windows differ at most from those asked for, both ends together.
func (c *choice) drifts(s segment) int64 {
	most := int64(0)
	// Edges lie to buckets as they did some steps ago: it is enough to look that far.
	steps := s.ToStep - s.FromStep
	if width := s.Resolution.Width(); c.Step > 0 {
		steps = min(steps, int(width/gcd(c.Step, width)))
	}
	for k := s.FromStep; k < s.FromStep+steps; k++ {
		right := c.right(k)
		a, b := s.window(right)
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
