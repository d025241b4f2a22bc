package expand

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// expandedStarts assigns start timestamps to the samples that a bucket was expanded into:
//
//	value        │     ╱│   ╱      resets by value stay where they are; resets that only start timestamps show
//	             │  ╱   │ ╱        are placed between others, in the same number
//	start        ├──────┼──►
//	             first  last       the last start is after the preceding sample; sample times move for it if needed
type expandedStarts struct {
	floats, hists int // number of floats and histograms before the bucket's samples
	wanted        int // number of resets that only start timestamps should show
	at            []int
	t, start      []int64
	resets        []bool // at index k: by value, sample k is a reset after sample k-1
	begins        []bool // at index k: by start, sample k starts after sample k-1
}

// begin records the positions at which samples will be appended.
func (x *expandedStarts) begin(into *chunk.Samples, b *rollup.Buckets, i int) {
	x.floats, x.hists = len(into.T), len(into.H)
	if x.wanted = 0; b.StartResets != nil {
		x.wanted = int(b.StartResets[i])
	}
}

// place sets the start timestamps of the samples that bucket i was expanded into.
func (x *expandedStarts) place(into *chunk.Samples, b *rollup.Buckets, i int) {
	n := int(b.Count[i])
	if b.FirstST == nil || n == 0 || b.FirstST[i] == 0 && b.LastST[i] == 0 && b.StartResets[i] == 0 {
		return
	}
	x.collect(into, n)
	if b.FirstST[i] != b.LastST[i] || b.StartResets[i] > 0 {
		x.findResets(into)
		x.arrange(b.FirstST[i], b.LastST[i], x.wanted)
	} else {
		for k := range x.start {
			x.start[k] = b.FirstST[i]
		}
	}
	if b.Flags[i]&rollup.StartsOverlap != 0 {
		x.overlap()
	}
	if len(into.ST) == 0 {
		into.ST = append(into.ST, make([]int64, len(into.T))...)
	}
	for k, at := range x.at {
		if at >= 0 {
			into.T[at], into.ST[at] = x.t[k], x.start[k]
		} else {
			into.H[^at].T, into.H[^at].ST = x.t[k], x.start[k]
		}
	}
}

// collect lists the samples in order of time: floats by their index, histograms by its complement.
func (x *expandedStarts) collect(into *chunk.Samples, n int) {
	x.at, x.t = x.at[:0], x.t[:0]
	x.start = append(x.start[:0], make([]int64, n)...)
	x.resets, x.begins = append(x.resets[:0], make([]bool, n)...), append(x.begins[:0], make([]bool, n)...)
	for f, h := x.floats, x.hists; f < len(into.T) || h < len(into.H); {
		if h == len(into.H) || f < len(into.T) && into.T[f] < into.H[h].T {
			x.at, x.t = append(x.at, f), append(x.t, into.T[f])
			f++
		} else {
			x.at, x.t = append(x.at, ^h), append(x.t, into.H[h].T)
			h++
		}
	}
}

// findResets records the resets by value.
func (x *expandedStarts) findResets(into *chunk.Samples) {
	for k := 1; k < len(x.at); k++ {
		switch before, at := x.at[k-1], x.at[k]; {
		case (before < 0) != (at < 0):
			x.resets[k] = true
		case at >= 0:
			x.resets[k] = into.V[at] < into.V[before]
		default:
			x.resets[k] = isResetBetween(into.H[^before].Float, into.H[^at].Float)
		}
	}
}

func isResetBetween(before, h *histogram.FloatHistogram) bool {
	return h != before && h.DetectReset(before)
}

// arrange sets start timestamps that change from first to last. resets is the number of resets that only start
// timestamps must show.
func (x *expandedStarts) arrange(first, last int64, resets int) {
	n := len(x.t)
	change := n - 1 // index of the first sample with the last start
	isSilent := false
	if last >= x.t[0] && last < x.t[n-1] {
		change = x.lastChange(last, resets)
		isSilent = resets == 0 && !x.resets[change]
		if isSilent && change == 1 && last > x.t[0] && n > 2 {
			change = 2
		}
		x.moveTimes(change, last)
		if !x.resets[change] && resets > 0 {
			resets--
		}
	}
	x.spread(change, resets, first != last)
	x.start[0] = first
	for k := 1; k < n; k++ {
		x.start[k] = x.start[k-1]
		switch {
		case k >= change:
			x.start[k] = last
		case !x.begins[k]:
		case x.isDeltaAfter(k - 1):
			x.start[k] = x.t[k-1]
		default:
			x.start[k] = min(x.t[k-1]+1, x.t[k]-1)
		}
	}
	before := change - 1
	switch {
	case before < 1 || x.resets[change]:
	case isSilent: // A sample that starts at a sample with an unknown start is not a reset.
		if last > x.t[before-1] && last < x.t[change] {
			x.t[before], x.start[before] = last, 0
		}
	case x.t[before] == last && !x.isDeltaAfter(before) && last-1 > x.t[before-1]:
		x.t[before]--
	}
}

// isDeltaAfter reports whether a sample that starts at the time of sample k is a delta. This is the case if sample k
// has a start before its own time.
func (x *expandedStarts) isDeltaAfter(k int) bool { return x.start[k] != 0 && x.start[k] < x.t[k] }

// spread chooses the samples before index change at which the start timestamp changes. resets is the number of chosen
// samples that aren't resets by value. If differ is set, all samples that are resets by value are also chosen.
func (x *expandedStarts) spread(change, resets int, differ bool) {
	free := 0
	for k := 1; k < change; k++ {
		if !x.resets[k] {
			free++
		}
	}
	resets = min(resets, free)
	seen, given := 0, 0
	for k := 1; k < change; k++ {
		if x.resets[k] {
			x.begins[k] = differ
			continue
		}
		seen++
		if until := resets * seen / free; until > given {
			given, x.begins[k] = until, true
		}
	}
}

// lastChange returns the index of the first sample with the last start, which is after the first sample's time and
// before the last sample's.
func (x *expandedStarts) lastChange(last int64, resets int) int {
	n := len(x.t)
	natural, _ := slices.BinarySearch(x.t, last+1)
	natural = min(max(natural, 1), n-1)
	if resets > 0 { // Resets that only start timestamps show need places before the change.
		free := 0
		for k := 1; k < n; k++ {
			if !x.resets[k] {
				free++
			}
			if k >= natural && free >= resets {
				return k
			}
		}
		return n - 1
	}
	best := 0
	for k := 1; k < n; k++ { // A reset by value has a new start.
		if x.resets[k] && (best == 0 || max(k-natural, natural-k) < max(best-natural, natural-best)) {
			best = k
		}
	}
	isNear := func(a, b int) bool { return a <= 2*b && b <= 2*a }
	if isNear(best, natural) && isNear(n-best, n-natural) {
		return best
	}
	return natural // Moving a reset by value so far would leave a gap between samples.
}

// moveTimes moves the samples before index change to times up to start, and the other samples to times after start. It
// does nothing if the samples already have such times, or if there are too few milliseconds. Otherwise it spaces the
// samples on both sides evenly, so that there is no gap before start.
func (x *expandedStarts) moveTimes(change int, start int64) {
	n := int64(len(x.t))
	first, last, at := x.t[0], x.t[n-1], int64(change)
	if x.t[change-1] <= start && x.t[change] > start || start-first < at-1 || last-start < n-at {
		return
	}
	switch {
	case x.t[change-1] > start:
		for k := int64(1); k < at; k++ {
			x.t[k] = first + (start-first)*k/(at-1)
		}
	case start-first >= at:
		for k := int64(1); k < at; k++ {
			x.t[k] = first + (start-first)*k/at
		}
	}
	for k := at; k < n; k++ {
		x.t[k] = start + (last-start)*(k-at+1)/(n-at)
	}
}

// overlap makes one sample start before the preceding sample, with a start that differs from the preceding sample's,
// unless such a sample exists (see StartsOverlap). It does so by clearing the preceding sample's start, because an
// unknown start counts as different.
func (x *expandedStarts) overlap() {
	for k := 1; k < len(x.t); k++ {
		if rollup.IsStartOverlap(x.start[k-1], x.t[k-1], x.start[k]) {
			return
		}
	}
	for k := 1; k+1 < len(x.t); k++ {
		if s := x.start[k]; s != 0 && s < x.t[k] && x.start[k-1] == s && x.start[k+1] == s {
			x.start[k] = 0
			return
		}
	}
}
