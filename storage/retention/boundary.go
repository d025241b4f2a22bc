package retention

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/rollup"
)

// Boundary holds the times until which rows of a tenant's class are hidden, missing and dropped at a resolution. It is
// stored, so it is the same in all processes and after restarts. Flags only set the target to which Expire moves the
// boundary.
//
//	DroppedMS ≤ LackingMS   HiddenMS                  now - retention
//	   |.........|..............|.........................|..........> time
//	     no rows   rows exist:    hidden by the flags and   shown
//	               a higher       the clock, up to the end
//	               retention      of one more window; raw
//	               shows them     rows only if NextRolled
//
// DroppedMS, LackingMS and HiddenMS are ends of windows in milliseconds, or Never if they apply to no window. If the
// engine expires rows, LackingMS stays Never, and DroppedMS is only the time until which the windows of steps were
// processed.
type Boundary struct {
	Class      int64             `json:"class"`
	Resolution rollup.Resolution `json:"resolution"`
	// HiddenMS is lowered when the retention is raised, but never below LackingMS.
	HiddenMS int64 `json:"hidden_ms"`
	// NextRolled is true if the rollups of the first raw window after HiddenMS are complete. Only then may queries hide
	// samples of this window as they pass the retention. It is false for rollups, and whenever HiddenMS changes.
	NextRolled bool `json:"next_rolled,omitempty"`
	// LackingMS is the time until which rows may be missing because they were dropped or never computed. It is lowered
	// when an import restores a window.
	LackingMS int64 `json:"lacking_ms"`
	// DroppedMS is lowered together with LackingMS. All rows before it are dropped, even if they were written after the
	// drop.
	DroppedMS int64 `json:"dropped_ms"`
	// Holes are ranges after LackingMS in which rows may also be missing: an import has restored only the windows
	// around them, see restore. If the engine expires rows, Holes isn't used, and expiries determine the holes: see
	// holes.go.
	Holes []hole `json:"holes,omitempty"`
	// KeptMS is the retention that the boundary follows; 0 means forever. If it was lowered, SinceMS is the observed
	// uptime at the last change, and BeforeMS is the longest retention in force during the week before the change.
	// Otherwise SinceMS is 0.
	KeptMS   int64 `json:"kept_ms"`
	BeforeMS int64 `json:"before_ms,omitempty"`
	SinceMS  int64 `json:"since_ms,omitempty"`
	// Steps are the advances of HiddenMS whose windows aren't dropped yet, in order.
	Steps []hidingStep `json:"steps,omitempty"`
}

// hidingStep records the observed uptime at which the windows up to ToMS were hidden.
type hidingStep struct {
	ToMS   int64 `json:"to_ms"`
	SeenMS int64 `json:"seen_ms"`
	// Was is the previous retention if the windows were hidden because the retention was lowered. Otherwise it is nil.
	Was *loweredFrom `json:"lowered,omitempty"`
}

// hole is a range of windows whose rows may be missing. FromMS and ToMS are ends of windows.
type hole struct {
	FromMS int64 `json:"from_ms"`
	ToMS   int64 `json:"to_ms"`
}

// loweredFrom holds a retention before it was lowered, and HiddenMS at that time.
type loweredFrom struct {
	KeptMS   int64 `json:"kept_ms"`
	HiddenMS int64 `json:"hidden_ms"`
}

const (
	// maxSteps is the maximum number of steps of a boundary. Normally there are at most eight, because a week contains
	// the ends of at most eight days.
	maxSteps = 32
	// maxHoles is the maximum number of holes of a boundary.
	maxHoles = 32
)

// setTarget sets HiddenMS to target, which may show windows again. seenMS is the observed uptime. was is set if the
// retention was lowered.
func (h *Boundary) setTarget(target, seenMS int64, was *loweredFrom) {
	if i := slices.IndexFunc(h.Steps, func(s hidingStep) bool { return s.ToMS > target }); i >= 0 {
		if target > h.hiddenBySteps(i) { // The remaining windows of this step keep its time.
			h.Steps[i].ToMS = target
			i++
		}
		h.Steps = h.Steps[:i]
	}
	if target > h.hiddenBySteps(len(h.Steps)) {
		h.Steps = append(h.Steps, hidingStep{ToMS: target, SeenMS: seenMS, Was: was})
		if len(h.Steps) > maxSteps { // The first two steps are merged, and due with the second.
			h.Steps = h.Steps[1:]
		}
	}
	h.setHidden(max(target, h.LackingMS))
	h.DroppedMS = min(h.DroppedMS, h.HiddenMS)
}

// setHidden sets HiddenMS. If HiddenMS changes, NextRolled becomes false, because the rollups of the window that is now
// next may be missing.
func (h *Boundary) setHidden(ms int64) {
	h.NextRolled = h.NextRolled && ms == h.HiddenMS
	h.HiddenMS = ms
}

// hiddenSince returns the observed uptime at which the window with this end was hidden. ok is false if the window isn't
// hidden, or is already dropped.
func (h *Boundary) hiddenSince(end int64) (seenMS int64, ok bool) {
	if h == nil || end <= h.DroppedMS {
		return 0, false
	}
	i := slices.IndexFunc(h.Steps, func(s hidingStep) bool { return s.ToMS >= end })
	if i < 0 {
		return 0, false
	}
	return h.Steps[i].SeenMS, true
}

// hiddenBySteps returns the time until which windows are hidden by the first n steps.
func (h *Boundary) hiddenBySteps(n int) int64 {
	if n == 0 {
		return h.DroppedMS
	}
	return h.Steps[n-1].ToMS
}

// dueUntil returns the time until which rows may be dropped, because they have been hidden for a week of observed
// uptime.
func (h *Boundary) dueUntil(seenMS int64) int64 {
	to := h.DroppedMS
	for _, s := range h.Steps {
		if seenMS-s.SeenMS >= Grace.Milliseconds() {
			to = max(to, s.ToMS)
		}
	}
	return to
}

// recordDropped records that rows up to a time are dropped. If the engine expires rows, it doesn't record them as
// missing, because expiries alone decide which rows are missing.
func (h *Boundary) recordDropped(to int64, expiring bool) {
	h.DroppedMS = max(h.DroppedMS, to)
	if !expiring {
		h.recordMissing(h.DroppedMS)
	}
	h.Steps = slices.DeleteFunc(h.Steps, func(s hidingStep) bool { return s.ToMS <= to })
}

// recordMissing records that rows up to a time may be missing.
func (h *Boundary) recordMissing(to int64) {
	h.LackingMS = max(h.LackingMS, to)
	for len(h.Holes) > 0 && h.Holes[0].FromMS <= h.LackingMS {
		h.LackingMS = max(h.LackingMS, h.Holes[0].ToMS)
		h.Holes = h.Holes[1:]
	}
	h.setHidden(max(h.HiddenMS, h.LackingMS))
}

// mayMiss reports whether rows of the window with this end may be missing.
func (h *Boundary) mayMiss(end int64) bool {
	return end <= h.LackingMS ||
		slices.ContainsFunc(h.Holes, func(o hole) bool { return end > o.FromMS && end <= o.ToMS })
}

// restoreWindow records that a window whose rows may be missing will get rows again. It returns false if the boundary
// would have too many holes.
func (h *Boundary) restoreWindow(start, end int64) bool {
	holes := h.Holes
	if end <= h.LackingMS {
		holes = append([]hole{{start, h.LackingMS}}, holes...)
	}
	var next []hole
	for _, o := range holes {
		if end <= o.FromMS || start >= o.ToMS {
			next = append(next, o)
			continue
		}
		for _, part := range []hole{{o.FromMS, start}, {end, o.ToMS}} {
			if part.FromMS < part.ToMS {
				next = append(next, part)
			}
		}
	}
	if len(next) > maxHoles {
		return false
	}
	h.Holes, h.LackingMS = next, min(h.LackingMS, start)
	h.DroppedMS = min(h.DroppedMS, h.LackingMS)
	h.setHidden(max(h.LackingMS, h.hiddenBySteps(len(h.Steps))))
	return true
}

// setRetention sets the retention that the boundary follows.
func (h *Boundary) setRetention(keptMS, seenMS int64) {
	if h.KeptMS == keptMS {
		return
	}
	if before := h.longestRetention(h.KeptMS, seenMS); isShorter(keptMS, before) {
		h.BeforeMS, h.SinceMS = before, max(seenMS, 1)
	} else {
		h.BeforeMS, h.SinceMS = 0, 0
	}
	h.KeptMS = keptMS
}

// longestRetention returns the longest of three retentions: keptMS; the retention that the boundary still follows; and,
// for a week of observed uptime after the boundary's retention was lowered, the retention before it was lowered.
func (h *Boundary) longestRetention(keptMS, seenMS int64) int64 {
	if isShorter(keptMS, h.KeptMS) {
		keptMS = h.KeptMS
	}
	if h.SinceMS > 0 && isShorter(keptMS, h.BeforeMS) && seenMS-h.SinceMS < Grace.Milliseconds() {
		keptMS = h.BeforeMS
	}
	return keptMS
}

// boundaryRow holds the boundaries of a tenant, ordered by class and resolution.
type boundaryRow struct {
	List []Boundary `json:"horizons"`
}

func (r *boundaryRow) indexOf(class int64, res rollup.Resolution) (int, bool) {
	return slices.BinarySearchFunc(r.List, Boundary{Class: class, Resolution: res}, func(a, b Boundary) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Resolution, b.Resolution))
	})
}

// Boundary returns the boundary of a class at a resolution, or nil if it isn't stored.
func (r *boundaryRow) Boundary(class int64, res rollup.Resolution) *Boundary {
	if i, ok := r.indexOf(class, res); ok {
		return &r.List[i]
	}
	return nil
}

// ensureBoundary returns the boundary of a class at a resolution for modification, and adds it if it is missing.
func (r *boundaryRow) ensureBoundary(class int64, res rollup.Resolution) *Boundary {
	i, ok := r.indexOf(class, res)
	if !ok {
		r.List = slices.Insert(r.List, i, Boundary{
			Class: class, Resolution: res, HiddenMS: Never, LackingMS: Never, DroppedMS: Never,
		})
	}
	return &r.List[i]
}

func (r *boundaryRow) clone() *boundaryRow {
	out := &boundaryRow{List: slices.Clone(r.List)}
	for i := range out.List {
		out.List[i].Steps = slices.Clone(out.List[i].Steps)
		out.List[i].Holes = slices.Clone(out.List[i].Holes)
	}
	return out
}

// parseBoundaries parses the value of a tenant's row. Callers must not treat an unreadable row as a missing row,
// because this would show rows that were dropped, and could hide or drop other rows again.
func parseBoundaries(value []byte) (r boundaryRow, err error) {
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("storage: a row of retention boundaries is corrupt: %w", err)
	}
	for i := range r.List {
		h := &r.List[i]
		if at, ok := r.indexOf(h.Class, h.Resolution); !ok || at != i || h.DroppedMS > h.HiddenMS ||
			h.LackingMS > h.HiddenMS ||
			h.Resolution > rollup.OneHour || h.Class < 0 || h.Class > maxKnownClasses {
			return r, fmt.Errorf("storage: a row of retention boundaries is corrupt: entry %d is inconsistent", i)
		}
	}
	return r, nil
}
