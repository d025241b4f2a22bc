package storage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestPagesAgainstModel runs seeded histories of pages of multiple levels, and compares every answer with a plain map
// of the samples. A failing history is shortened and printed. To replay it, put it in a file and pass -protocol.file.
func TestPagesAgainstModel(t *testing.T) {
	t.Parallel()
	for kind, seeds := range pagesSeeds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range protocolSeeds(t, seeds) {
				h := makePagesHistory(seed, kind)
				if problem := runHistory(h); problem != "" {
					h = shrinkHistory(h)
					t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
				}
			}
		})
	}
}

// pagesSeeds returns the number of histories of pages on each engine. Under the race detector there are none on Pebble,
// which records a stack for every iterator: they would take a minute. TestCompactedProtocol and TestWaysOut run on
// Pebble under the race detector.
func pagesSeeds() map[string]int {
	if soak.UnderRace {
		return map[string]int{"memory": 16}
	}
	return map[string]int{"memory": 16, "pebble": 2}
}

// pagesFact is a value that was sent. Of the facts of a series with the same time, the last one has the highest value
// and wins.
type pagesFact struct {
	v float64
	// acked is true if the value was acknowledged, sealed if it is certainly sealed, and deleted if a delete of it was
	// acknowledged.
	acked, sealed, deleted bool
	// gone is true for each resolution at which the value's window was dropped since.
	gone [resolutions]bool
}

// pagesModel contains all values that were sent, by series and time.
type pagesModel struct {
	facts map[string]map[int64][]*pagesFact
	// hidden is the time, at each resolution, until which samples may ever have been hidden or dropped.
	hidden [resolutions]int64
}

func newPagesModel() *pagesModel {
	return &pagesModel{
		facts:  map[string]map[int64][]*pagesFact{},
		hidden: [resolutions]int64{math.MinInt64, math.MinInt64, math.MinInt64},
	}
}

// put records a value that is being sent at some times, and returns its facts.
func (m *pagesModel) put(series string, times []int64, v float64) (added []*pagesFact) {
	if m.facts[series] == nil {
		m.facts[series] = map[int64][]*pagesFact{}
	}
	for _, t := range times {
		f := &pagesFact{v: v}
		m.facts[series][t] = append(m.facts[series][t], f)
		added = append(added, f)
	}
	return added
}

// each calls do for all facts.
func (m *pagesModel) each(do func(series string, t int64, f *pagesFact)) {
	for series, times := range m.facts {
		for t, list := range times {
			for _, f := range list {
				do(series, t, f)
			}
		}
	}
}

// pagesBucket identifies a bucket of a series.
type pagesBucket struct {
	series string
	end    int64
	res    rollup.Resolution
}

// bucketFacts are the count and the max of a bucket.
type bucketFacts struct {
	count int
	max   float64
}

// pagesAnswer is an answer of the store: samples and buckets. Samples may be missing up to the times in told, and after
// until.
type pagesAnswer struct {
	raw     map[string]map[int64]float64
	buckets map[pagesBucket]bucketFacts
	told    map[byte][resolutions]int64 // by group
	until   int64
}

// lacks reports whether the samples of a series at a time may be missing in the answer.
func (a *pagesAnswer) lacks(res rollup.Resolution, series string, t int64) bool {
	return t <= a.told[groupOf(series)][res] || t > a.until
}

// groupOf returns the group of a series.
func groupOf(series string) byte {
	_, from, _ := strings.Cut(series, `group="`)
	return from[0]
}

// judge returns a description of the first problem in an answer, or "".
func (m *pagesModel) judge(a *pagesAnswer) string {
	for _, told := range a.told {
		for res := range told {
			if told[res] > m.hidden[res] {
				return fmt.Sprintf(
					"%s is hidden up to %s, at most %s was right ever", rollup.Resolution(res), showTime(told[res]),
					showTime(m.hidden[res]),
				)
			}
		}
	}
	for series, times := range a.raw {
		for t, v := range times {
			if problem := m.judgeShown(series, t, v); problem != "" {
				return problem
			}
		}
	}
	for series, times := range m.facts {
		for t, list := range times {
			if a.lacks(rollup.Raw, series, t) {
				continue
			}
			got, shown := a.raw[series][t]
			for _, f := range list {
				if f.acked && !f.deleted && !f.gone[rollup.Raw] && (!shown || got < f.v) {
					return fmt.Sprintf("%s at %s: %v is missing, %v is shown: %t", series, showTime(t), f.v, got, shown)
				}
			}
		}
	}
	if a.buckets == nil {
		return ""
	}
	return m.judgeBuckets(a)
}

func (m *pagesModel) judgeShown(series string, t int64, v float64) string {
	i := slices.IndexFunc(m.facts[series][t], func(f *pagesFact) bool { return f.v == v })
	switch {
	case i < 0:
		return fmt.Sprintf("%s at %s shows %v, which was never written", series, showTime(t), v)
	case m.facts[series][t][i].deleted:
		return fmt.Sprintf("%s at %s shows %v, which was deleted", series, showTime(t), v)
	case m.facts[series][t][i].gone[rollup.Raw]:
		return fmt.Sprintf("%s at %s shows %v, whose window was dropped", series, showTime(t), v)
	}
	return ""
}

// judgeBuckets compares buckets with their samples that aren't deleted. If the answer must contain all of them, the
// buckets must be exact. Otherwise they must not count more samples.
func (m *pagesModel) judgeBuckets(a *pagesAnswer) string {
	most, exact := map[pagesBucket]int{}, map[pagesBucket]bucketFacts{}
	for series, times := range m.facts {
		for t, list := range times {
			for _, res := range rollup.Resolutions {
				b := pagesBucket{series, endOfBucket(t, res), res}
				if slices.ContainsFunc(list, func(f *pagesFact) bool { return !f.gone[res] && !f.deleted }) {
					most[b]++
				}
				if v, shown := a.raw[series][t]; shown {
					exact[b] = bucketFacts{exact[b].count + 1, max(exact[b].max, v)}
				}
			}
		}
	}
	isExact := func(b pagesBucket) bool {
		first := b.end - b.res.Width() + 1
		return !a.lacks(rollup.Raw, b.series, first) && !a.lacks(b.res, b.series, first) && b.end <= a.until
	}
	for b, got := range a.buckets {
		if got.count > most[b] {
			return fmt.Sprintf(
				"%s: the %s bucket until %s counts %d samples, %d stand", b.series, b.res, showTime(b.end), got.count,
				most[b],
			)
		}
		if isExact(b) && got != exact[b] {
			return fmt.Sprintf(
				"%s: the %s bucket until %s is %v, samples make %v", b.series, b.res, showTime(b.end), got, exact[b],
			)
		}
	}
	for b, want := range exact {
		if isExact(b) && a.buckets[b] != want {
			return fmt.Sprintf(
				"%s: the %s bucket until %s is %v, samples make %v", b.series, b.res, showTime(b.end), a.buckets[b],
				want,
			)
		}
	}
	return ""
}

// hides records that rows up to a time may be hidden, because they are past a retention by some clock.
func (m *pagesModel) hides(res rollup.Resolution, to int64) { m.hidden[res] = max(m.hidden[res], to) }

// sealed records that all acknowledged samples are sealed.
func (m *pagesModel) sealed() {
	m.each(func(_ string, _ int64, f *pagesFact) { f.sealed = f.sealed || f.acked })
}

// dropped marks sealed facts as gone at a resolution. inWindow selects the facts whose metric has no rows and no pages
// any more in their window.
func (m *pagesModel) dropped(res rollup.Resolution, inWindow func(series string, t int64) bool) {
	m.each(func(series string, t int64, f *pagesFact) {
		f.gone[res] = f.gone[res] || f.sealed && inWindow(series, t)
	})
}

// delete records a delete that was acknowledged.
func (m *pagesModel) delete(group string, start, end int64) {
	for _, ls := range seriesOfGroups(group) {
		for t, list := range m.facts[ls.String()] {
			for _, f := range list {
				f.deleted = f.deleted || f.acked && t >= start && t <= end
			}
		}
	}
}

// hour returns t rounded down to a full hour.
func hour(t int64) int64 { return format.FloorDiv(t, format.HourMS) * format.HourMS }
