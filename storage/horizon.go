package storage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// horizon is up to when rows of a tenant's class are hidden, and gone, at a resolution. It is stored, and so the same for
// every process and after every restart; flags only set its target.
//
//	dropped ≤ lacking        hidden                    now - retention
//	   |.........|..............|.........................|..........> time
//	     no rows   rows stand:    hidden by the flags and   shown
//	               a higher       the clock, up to the end
//	               retention      of one more window
//	               shows them
//
// All three are ends of windows, milliseconds, up to which it is so; never: nothing is.
type horizon struct {
	Class      int64             `json:"class"`
	Resolution rollup.Resolution `json:"resolution"`
	// HiddenMS goes back when the retention is raised, but never before LackingMS.
	HiddenMS int64 `json:"hidden_ms"`
	// LackingMS never goes back: rows may be missing, for they were dropped or never made.
	LackingMS int64 `json:"lacking_ms"`
	// DroppedMS never goes back: rows are dropped wherever they are found.
	DroppedMS int64 `json:"dropped_ms"`
	// KeptMS is the retention that it went by last; 0: for ever. SinceMS is what the store had seen of time when that
	// changed; 0: it always was so, as far as is known.
	KeptMS  int64 `json:"kept_ms"`
	SinceMS int64 `json:"since_ms,omitempty"`
	// Raised is true if it came to KeptMS by a longer retention, so that Wrote has all that was written before.
	Raised bool `json:"raised,omitempty"`
	// BeforeMS is, over such an engine, the retention that was in force before those of the last week that didn't count: rows that were
	// written with it stand. 0: for ever, or there were none.
	BeforeMS int64 `json:"before_ms,omitempty"`
	// Wrote are the windows whose rows were written with shorter retentions before it, over an engine whose rows vanish by
	// themselves.
	Wrote []wroteUnder `json:"wrote,omitempty"`
	// Steps are those in which HiddenMS went ahead and that aren't dropped, in order.
	Steps []hidingStep `json:"steps,omitempty"`
}

// hidingStep records the store's seen time at which the windows that end up to ToMS were hidden.
type hidingStep struct {
	ToMS   int64 `json:"to_ms"`
	SeenMS int64 `json:"seen_ms"`
	// Was is there where it was hidden because the retention was lowered: what that was before.
	Was *keptBefore `json:"lowered,omitempty"`
}

// keptBefore is a retention before it was lowered, and up to where was hidden then.
type keptBefore struct {
	KeptMS   int64 `json:"kept_ms"`
	HiddenMS int64 `json:"hidden_ms"`
}

const (
	// never is the horizon of rows that are all there.
	never = -format.MaxTime
	// maxSteps bounds the steps of a horizon. A week has eight ends of days.
	maxSteps = 32
	// maxWrote bounds the ranges of windows that were written with shorter retentions.
	maxWrote = 32
)

// aim hides up to target, or shows again what lies after it.
func (h *horizon) aim(target, seenMS int64) { h.aimLowered(target, seenMS, nil) }

// aimLowered is aim where a retention was lowered.
func (h *horizon) aimLowered(target, seenMS int64, was *keptBefore) {
	if i := slices.IndexFunc(h.Steps, func(s hidingStep) bool { return s.ToMS > target }); i >= 0 {
		if target > h.stepped(i) { // What stays hidden has been since that step.
			h.Steps[i].ToMS = target
			i++
		}
		h.Steps = h.Steps[:i]
	}
	if target > h.stepped(len(h.Steps)) {
		h.Steps = append(h.Steps, hidingStep{ToMS: target, SeenMS: seenMS, Was: was})
		if len(h.Steps) > maxSteps { // The first two go together, when the second may.
			h.Steps = h.Steps[1:]
		}
	}
	h.HiddenMS = max(target, h.LackingMS)
}

// hiddenSince returns how much time the store had seen when a window with this end was hidden; ok is false if it isn't, or
// is dropped.
func (h *horizon) hiddenSince(end int64) (seenMS int64, ok bool) {
	if h == nil || end <= h.DroppedMS {
		return 0, false
	}
	i := slices.IndexFunc(h.Steps, func(s hidingStep) bool { return s.ToMS >= end })
	if i < 0 {
		return 0, false
	}
	return h.Steps[i].SeenMS, true
}

// stepped returns where the first n steps lead.
func (h *horizon) stepped(n int) int64 {
	if n == 0 {
		return h.DroppedMS
	}
	return h.Steps[n-1].ToMS
}

// due returns up to where rows may be dropped: they have been hidden for a week of time that the store has seen.
func (h *horizon) due(seenMS int64) int64 {
	to := h.DroppedMS
	for _, s := range h.Steps {
		if seenMS-s.SeenMS >= expireGrace.Milliseconds() {
			to = max(to, s.ToMS)
		}
	}
	return to
}

// drop notes that rows up to a time are dropped from now on.
func (h *horizon) drop(to int64) {
	h.DroppedMS = max(h.DroppedMS, to)
	h.lack(h.DroppedMS)
	h.Steps = slices.DeleteFunc(h.Steps, func(s hidingStep) bool { return s.ToMS <= to })
}

// lack notes that rows up to a time may be missing.
func (h *horizon) lack(to int64) {
	h.LackingMS = max(h.LackingMS, to)
	h.HiddenMS = max(h.HiddenMS, h.LackingMS)
	h.Wrote = slices.DeleteFunc(h.Wrote, func(w wroteUnder) bool { return w.ToMS <= h.LackingMS })
}

// horizonRow holds the horizons of a tenant, in the order of classes and resolutions.
type horizonRow struct {
	Horizons []horizon `json:"horizons"`
}

func (r *horizonRow) find(class int64, res rollup.Resolution) (int, bool) {
	return slices.BinarySearchFunc(r.Horizons, horizon{Class: class, Resolution: res}, func(a, b horizon) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Resolution, b.Resolution))
	})
}

// of returns the horizon of a class, nil if none is stored.
func (r *horizonRow) of(class int64, res rollup.Resolution) *horizon {
	if i, ok := r.find(class, res); ok {
		return &r.Horizons[i]
	}
	return nil
}

// at returns the horizon of a class to change it.
func (r *horizonRow) at(class int64, res rollup.Resolution) *horizon {
	i, ok := r.find(class, res)
	if !ok {
		r.Horizons = slices.Insert(r.Horizons, i, horizon{Class: class, Resolution: res, HiddenMS: never, LackingMS: never, DroppedMS: never})
	}
	return &r.Horizons[i]
}

func (r *horizonRow) clone() horizonRow {
	out := horizonRow{Horizons: slices.Clone(r.Horizons)}
	for i := range out.Horizons {
		out.Horizons[i].Steps = slices.Clone(out.Horizons[i].Steps)
		out.Horizons[i].Wrote = slices.Clone(out.Horizons[i].Wrote)
	}
	return out
}

func (r *horizonRow) equal(other *horizonRow) bool {
	return slices.EqualFunc(r.Horizons, other.Horizons, func(a, b horizon) bool {
		return a.HiddenMS == b.HiddenMS && a.LackingMS == b.LackingMS && a.DroppedMS == b.DroppedMS &&
			a.KeptMS == b.KeptMS && a.SinceMS == b.SinceMS && a.Raised == b.Raised && a.BeforeMS == b.BeforeMS && a.Class == b.Class && a.Resolution == b.Resolution &&
			slices.Equal(a.Steps, b.Steps) && slices.Equal(a.Wrote, b.Wrote)
	})
}

// parseHorizons reads the value of a tenant's row. Whoever took a row that it can't read for none would show rows that are
// gone, and might hide or drop anew.
func parseHorizons(value []byte) (r horizonRow, err error) {
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("storage: a row of retention boundaries is corrupt: %w", err)
	}
	for i := range r.Horizons {
		h := &r.Horizons[i]
		if at, ok := r.find(h.Class, h.Resolution); !ok || at != i || h.DroppedMS > h.LackingMS || h.LackingMS > h.HiddenMS ||
			h.Resolution > rollup.OneHour || h.Class < 0 || h.Class > maxKnownClasses {
			return r, fmt.Errorf("storage: a row of retention boundaries is corrupt: entry %d is inconsistent", i)
		}
	}
	return r, nil
}
