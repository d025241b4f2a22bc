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

// waysFact is a sample that was sent. Of the facts of a series with the same time, the last one has the highest value
// and wins.
type waysFact struct {
	v float64
	// acked is true if the sample was acknowledged. deleted is true if an acknowledged delete covers it. mayBe is true
	// if any delete covers it, including failed deletes that may still be applied.
	acked, deleted, mayBe bool
	// rawless is true if the sample was stored only in rollups, without raw rows.
	rawless bool
	// sealed is true if the sample is certainly sealed. Queries don't return unsealed samples past the raw retention.
	sealed bool
	// kept is the shortest raw retention of a process since the sample was written, in milliseconds.
	kept int64
}

// waysHorizon is the expected retention boundary of a resolution. Rows before hidden were hidden. Rows before gone were
// hidden for a week and may have been dropped. Rows before lacking may be missing, because their samples arrived past
// the retention.
type waysHorizon struct {
	hidden, gone, lacking int64
	steps                 []waysStep
}

// least returns the time before which rows of a resolution may be hidden or missing, even after its retention was
// raised.
func (h *waysHorizon) least() int64 { return max(h.hidden, h.gone, h.lacking) }

// lack records that windows until the end of t's day may have no rows of this resolution.
func (h *waysHorizon) lack(t int64) {
	h.lacking = max(h.lacking, -format.FloorDiv(-t, format.DayMS)*format.DayMS)
}

// waysStep describes an Expire: passed is its time, and hidden the time until which it hid rows, in milliseconds.
type waysStep struct{ passed, hidden int64 }

// expired records an Expire. ok is false if it failed.
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

// waysBucket identifies a bucket of a series.
type waysBucket struct {
	series, end int64
	res         rollup.Resolution
}

// waysModel contains the samples that must be found, and those that must not be found:
//
//   - An acknowledged sample is found if it was always within the retention. A sample that was outside of it for less
//     than a week is found again.
//   - A deleted sample never reappears, after any copy, cleaning or restart.
//   - The count of a bucket never decreases, and is at least the number of visible raw samples, unless some of its
//     samples are deleted.
//   - If samples are missing in an answer, the retention boundaries report it.
type waysModel struct {
	facts    map[int64]map[int64][]*waysFact // by series and time
	horizons [3]waysHorizon
	floors   map[waysBucket]int
	expiring bool
	// gaps contains the days whose rows may expire by the shorter retention after a retention was raised. The key is
	// the end of the day, and the value the time at which its rows expire, in milliseconds.
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

// keptMS returns a retention in milliseconds. An indefinite retention is returned as the max time.
func keptMS(d time.Duration) int64 {
	if d == 0 {
		return format.MaxTime
	}
	return d.Milliseconds()
}

// put records samples that were sent. A fact with the same time and value as an existing fact is the same sample that
// was sent again.
func (m *waysModel) put(series int64, times []int64, v float64, fact waysFact) {
	fact.v = v
	for _, t := range times {
		f := fact
		others := slices.DeleteFunc(m.facts[series][t], func(f *waysFact) bool { return f.v == v })
		m.facts[series][t] = append(others, &f)
	}
}

// rolledUp records samples that were stored only in rollups, from resolution finest to the coarsest. Buckets that were
// empty must count them.
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

// delete records a delete of a series, or of all series if series is -1. done is true if the delete succeeded, and
// false if it may still be applied.
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

// keeps records that a process with this raw retention is running.
func (m *waysModel) keeps(raw time.Duration) {
	for _, times := range m.facts {
		for _, list := range times {
			for _, f := range list {
				f.kept = min(f.kept, keptMS(raw))
			}
		}
	}
}

// raised records that rows had a retention of kept milliseconds until now, and now have a longer one.
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

// gap records that rows of t's day may expire by the retention kept.
func (m *waysModel) gap(t, kept int64) {
	end := -format.FloorDiv(-t, format.DayMS) * format.DayMS
	vanish := end + kept + (retention.Grace - retention.Margin).Milliseconds()
	if was, ok := m.gaps[end]; ok {
		vanish = min(vanish, was)
	}
	m.gaps[end] = vanish
}

// vanished reports whether rows of t's day may have expired in the engine.
func (m *waysModel) vanished(t, now int64) bool {
	vanish, ok := m.gaps[-format.FloorDiv(-t, format.DayMS)*format.DayMS]
	return ok && vanish <= now
}

// sealed records that all samples are sealed.
func (m *waysModel) sealed() {
	for _, times := range m.facts {
		for _, list := range times {
			for _, f := range list {
				f.sealed = true
			}
		}
	}
}

// waysAnswer is the answer of a process, with the retention boundaries that the process reports.
type waysAnswer struct {
	raw     map[int64]map[int64]float64
	buckets map[waysBucket]int
	// told returns the time until which answers about t don't use a resolution, according to the retention boundaries.
	told func(res rollup.Resolution, t int64) int64
	// now is the true time. bound contains, for each resolution, the max time until which rows may be hidden by the
	// process' clock and retentions.
	now   int64
	bound [3]int64
	// until is the time of the last samples that the answer may contain. By a slow clock, later samples are in the
	// future.
	until int64
	// late is true if the answer has a warning about samples that are missing until they are sealed, because their raw
	// rows have expired.
	late bool
}

// judge returns a description of the first problem in an answer, or "".
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

// mayBeLate reports whether there may be unsealed samples that are older than all visible raw rows.
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
	// On the day that contains the boundary of hidden samples, rollups may not include a delete until the next Expire.
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
