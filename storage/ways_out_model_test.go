package storage

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// waysSeries is the number of series in the histories of the removal paths.
const waysSeries = 3

// waysFact is a sample written at a time of a series: later facts with the same time have higher values, which win.
type waysFact struct {
	v float64
	// acked is true if it was acknowledged; deleted if its delete was acknowledged; mayBe if an unacknowledged delete
	// of it may take effect.
	acked, deleted, mayBe bool
	// rawless is true if it was accepted for rollups only, without raw rows.
	rawless bool
	// sealed is true if it is certain to be sealed. Unsealed samples past the raw retention aren't shown.
	sealed bool
	// kept is the shortest raw retention in force since it was written, milliseconds.
	kept int64
}

// waysHorizon is the expected retention boundary of a resolution. Rows before hidden were hidden. Rows before gone were
// hidden for a week and may have been dropped. Rows before lacking may be missing, because their samples arrived after
// the retention had passed.
type waysHorizon struct {
	hidden, gone, lacking int64
	steps                 []waysStep
}

// least returns the time until which a resolution may be hidden although its retention was raised.
func (h *waysHorizon) least() int64 { return max(h.hidden, h.gone, h.lacking) }

// lack records that windows ending at the end of t's day may only have rollups.
func (h *waysHorizon) lack(t int64) {
	h.lacking = max(h.lacking, -format.FloorDiv(-t, format.DayMS)*format.DayMS)
}

// waysStep is the maximum time until which an Expire hid rows, and the time of that Expire, milliseconds.
type waysStep struct{ passed, hidden int64 }

// expired records an Expire, or one that failed.
func (h *waysHorizon) expired(passed, hidden int64, ok bool) {
	if !ok {
		hidden = max(hidden, h.hidden)
	}
	h.hidden = hidden
	h.steps = append(h.steps, waysStep{passed, hidden})
	least := int64(math.MaxInt64)
	for i := len(h.steps) - 1; i >= 0; i-- {
		if least = min(least, h.steps[i].hidden); passed-h.steps[i].passed >= retention.Grace.Milliseconds() {
			h.gone = max(h.gone, least)
		}
	}
}

// waysBucket names a bucket of a series.
type waysBucket struct {
	series, end int64
	res         rollup.Resolution
}

// waysModel holds the samples that must, and must not, be found:
//
//   - An acknowledged sample inside the retention that was in force ever since is found. One that was outside of it for
//     less than a week is found again.
//   - A deleted sample never reappears after any copy, cleaning or restart.
//   - A bucket never counts less than it did, or than raw samples show, unless some of its samples are deleted.
//   - Samples missing in an answer are reported by the retention boundaries.
type waysModel struct {
	facts    map[int64]map[int64][]*waysFact // by series and time
	horizons [3]waysHorizon
	floors   map[waysBucket]int
	expiring bool
	// gaps are the days that had samples when a longer retention took effect, by the end of the day, with the time at
	// which these expire, milliseconds.
	gaps map[int64]int64
}

func newWaysModel(expiring bool) *waysModel {
	m := &waysModel{
		facts: map[int64]map[int64][]*waysFact{}, floors: map[waysBucket]int{}, gaps: map[int64]int64{},
		expiring: expiring,
	}
	for i := range m.horizons {
		m.horizons[i] = waysHorizon{hidden: never, gone: never, lacking: never}
	}
	for s := range int64(waysSeries) {
		m.facts[s] = map[int64][]*waysFact{}
	}
	return m
}

// keptMS returns a retention in milliseconds; forever is the maximum.
func keptMS(d time.Duration) int64 {
	if d == 0 {
		return format.MaxTime
	}
	return d.Milliseconds()
}

// put records samples that were sent; one with the same value is the same sample, sent again.
func (m *waysModel) put(series int64, times []int64, v float64, fact waysFact) {
	fact.v = v
	for _, t := range times {
		f := fact
		others := slices.DeleteFunc(m.facts[series][t], func(f *waysFact) bool { return f.v == v })
		m.facts[series][t] = append(others, &f)
	}
}

// rolledUp records samples that were only added to rollups, of a resolution and wider ones: a bucket that was empty
// counts them.
func (m *waysModel) rolledUp(series int64, times []int64, finest rollup.Resolution) {
	for _, res := range rollup.Resolutions {
		if res < finest {
			continue
		}
		n := map[int64]int{}
		for _, t := range times {
			n[endOfBucket(t, res)]++
		}
		for end, count := range n {
			fresh := true
			for t := range m.facts[series] {
				fresh = fresh && endOfBucket(t, res) != end
			}
			if fresh {
				m.floors[waysBucket{series, end, res}] = count
			}
		}
	}
}

func endOfBucket(t int64, res rollup.Resolution) int64 {
	return -format.FloorDiv(-t, res.Width()) * res.Width()
}

// delete records a delete of a series, -1: of all, that succeeded or may take effect later.
func (m *waysModel) delete(series, start, end int64, done bool) {
	for s, times := range m.facts {
		if series >= 0 && s != series {
			continue
		}
		for t, list := range times {
			if t < start || t > end {
				continue
			}
			for _, f := range list {
				f.deleted, f.mayBe = f.deleted || done, true
			}
		}
		for b := range m.floors {
			if b.series == s && b.end >= start && b.end-b.res.Width() <= end {
				delete(m.floors, b)
			}
		}
	}
}

// keeps records that a process with a raw retention exists.
func (m *waysModel) keeps(raw time.Duration) {
	for _, times := range m.facts {
		for _, list := range times {
			for _, f := range list {
				f.kept = min(f.kept, keptMS(raw))
			}
		}
	}
}

// raised records that rows were kept for kept milliseconds until now, and are kept longer starting now.
func (m *waysModel) raised(kept, now int64) {
	m.gap(now, kept)
	m.gap(now+format.DayMS, kept) // The expiry of the next day may already be fixed.
	for _, times := range m.facts {
		for t := range times {
			m.gap(t, kept)
			m.gap(t+format.DayMS, kept)
		}
	}
}

// gap records that rows of t's day may expire by a retention.
func (m *waysModel) gap(t, kept int64) {
	end := -format.FloorDiv(-t, format.DayMS) * format.DayMS
	vanish := end + kept + (retention.Grace - retention.Margin).Milliseconds()
	if was, ok := m.gaps[end]; ok {
		vanish = min(vanish, was)
	}
	m.gaps[end] = vanish
}

// vanished reports whether samples of t's day may have expired in the engine.
func (m *waysModel) vanished(t, now int64) bool {
	vanish, ok := m.gaps[-format.FloorDiv(-t, format.DayMS)*format.DayMS]
	return ok && vanish <= now
}

// sealed records that all written samples are sealed.
func (m *waysModel) sealed() {
	for _, times := range m.facts {
		for _, list := range times {
			for _, f := range list {
				f.sealed = true
			}
		}
	}
}

// waysAnswer is an answer of a process, with the retention boundaries that it reports.
type waysAnswer struct {
	raw     map[int64]map[int64]float64
	buckets map[waysBucket]int
	// told returns the time until which an answer about t doesn't use a resolution, by its retention boundaries.
	told func(res rollup.Resolution, t int64) int64
	// now is the true time. bound are the maximum times until which rows may be hidden by the process' clock and
	// retentions.
	now   int64
	bound [3]int64
	// until is the time until which it shows samples: for a slow clock, later samples are in the future.
	until int64
	// late is true if a warning reported samples that are missing until they are sealed, because their raw rows have
	// expired.
	late bool
}

// judge returns a problem in an answer, or "".
func (m *waysModel) judge(a *waysAnswer) string {
	for s, times := range a.raw {
		for t := range times {
			if m.facts[s][t] == nil {
				return fmt.Sprintf("series %d shows a sample at %s that was never written", s, showTime(t))
			}
		}
	}
	for s, times := range m.facts {
		for t, list := range times {
			if problem := m.judgeTime(a, s, t, list); problem != "" {
				return problem
			}
		}
	}
	if a.late && !m.mayBeLate(a) {
		return "a warning of unsealed samples whose raw rows have expired, and there are none"
	}
	return m.judgeBuckets(a)
}

// mayBeLate reports whether samples that may be unsealed may be older than all raw rows.
func (m *waysModel) mayBeLate(a *waysAnswer) bool {
	for _, times := range m.facts {
		for t, list := range times {
			if t <= a.told(rollup.Raw, t) && slices.ContainsFunc(list, func(f *waysFact) bool { return !f.sealed }) {
				return true
			}
		}
	}
	return false
}

func (m *waysModel) judgeTime(a *waysAnswer, s, t int64, list []*waysFact) string {
	got, shown := a.raw[s][t]
	known := false
	for _, f := range list {
		known = known || f.v == got
		if shown && f.v == got && f.deleted {
			return fmt.Sprintf("series %d at %s: %v was deleted and came back", s, showTime(t), got)
		}
		if !f.acked || f.deleted || f.mayBe || shown && got >= f.v {
			continue
		}
		if t > a.until || m.expiring && t <= a.now-f.kept {
			continue // It was written with a TTL that has passed.
		}
		told := a.told(rollup.Raw, t)
		if !f.rawless && t > max(a.bound[rollup.Raw], m.horizons[rollup.Raw].gone) && !m.vanished(t, a.now) {
			return fmt.Sprintf(
				"series %d at %s: %v was acknowledged and is lost; told up to %s", s, showTime(t), f.v, showTime(told),
			)
		}
		if t > told {
			return fmt.Sprintf(
				"series %d at %s: %v is missing, and the answer tells only of what is missing up to %s", s, showTime(t),
				f.v, showTime(told),
			)
		}
	}
	if shown && !known {
		return fmt.Sprintf("series %d at %s shows %v, which was never written", s, showTime(t), got)
	}
	return ""
}

func (m *waysModel) judgeBuckets(a *waysAnswer) string {
	most, least, firm, open := map[waysBucket]int{}, map[waysBucket]int{}, map[waysBucket]int{}, map[waysBucket]bool{}
	for s, times := range m.facts {
		for t, list := range times {
			stands, sealed, acked := false, true, false
			for _, f := range list {
				stands, sealed = stands || !f.deleted, sealed && f.sealed
				acked = acked || f.acked && !f.mayBe
			}
			_, shown := a.raw[s][t]
			for _, res := range rollup.Resolutions {
				b := waysBucket{s, endOfBucket(t, res), res}
				if !sealed {
					open[b] = true
				}
				if stands {
					most[b]++
				}
				if acked {
					firm[b]++
				}
				if shown && acked {
					least[b]++
				}
			}
		}
	}
	// The day that the clock is hiding: until the next Expire its rollups may not include a delete.
	cut := func(b waysBucket) bool {
		told := a.told(rollup.Raw, b.end)
		day := format.FloorDiv(told-1, format.DayMS) * format.DayMS
		return b.end > day && b.end-b.res.Width() < told
	}
	for b, n := range a.buckets {
		if n > most[b] {
			return fmt.Sprintf(
				"series %d: the %s bucket until %s counts %d samples, %d stand", b.series, b.res, showTime(b.end), n,
				most[b],
			)
		}
	}
	for b, n := range least {
		if at := b.end - b.res.Width(); b.end <= a.until && a.buckets[b] < n && at >= a.told(b.res, b.end) &&
			at >= max(a.bound[b.res], m.horizons[b.res].gone) {
			return fmt.Sprintf(
				"series %d: the %s bucket until %s counts %d samples, raw shows %d", b.series, b.res, showTime(b.end),
				a.buckets[b], n,
			)
		}
	}
	for b, n := range m.floors {
		if at := b.end - b.res.Width(); b.end <= a.until && a.buckets[b] < n && !cut(b) &&
			at >= max(a.bound[b.res], m.horizons[b.res].gone) {
			return fmt.Sprintf(
				"series %d: the %s bucket until %s counts %d samples, it counted %d; told up to %s", b.series, b.res,
				showTime(b.end), a.buckets[b], n, showTime(a.told(b.res, b.end)),
			)
		}
	}
	for b, n := range a.buckets {
		if !open[b] {
			m.floors[b] = max(m.floors[b], min(n, firm[b])) // Unacknowledged samples may disappear.
		}
	}
	return ""
}
