package storage

import (
	"fmt"
	"math"
	"testing"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestClassesModel runs seeded histories of series that change their classes, and compares every answer, at each
// resolution, with a plain model. A deleted sample must never reappear, whichever classes still have rows. An
// acknowledged sample that isn't deleted must be found during the retention of its class. A failing history is
// shortened and printed. To replay it, put it in a file and pass -protocol.file.
func TestClassesModel(t *testing.T) {
	t.Parallel()
	for kind, seeds := range map[string]int{"memory": 120, "pebble": 10, "expiring": 40} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range protocolSeeds(t, seeds) {
				h := makeClassesHistory(seed, kind)
				if problem := runHistory(h); problem != "" {
					h = shrinkHistory(h)
					t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
				}
			}
		})
	}
}

// classesFact is a sample that was sent. Of the facts of a series with the same time, the last one has the highest
// value and wins.
type classesFact struct {
	v float64
	// acked is true if the sample was acknowledged. deleted is true if an acknowledged delete covers it. mayBe is true
	// if any delete covers it, including failed deletes that may still be applied.
	acked, deleted, mayBe bool
	// sealed is true if the sample is certainly sealed. Queries don't return unsealed samples past the raw retention.
	sealed bool
	// classes contains the classes that the sample may be stored in, as bits.
	classes uint
	// firm is true for the resolutions whose answers must include the sample. Existing buckets aren't recomputed from
	// fewer samples, so they may not include late samples.
	firm [resolutions]bool
}

func (f *classesFact) stands() bool { return !f.deleted }

// slotMS is the width of slots.
const slotMS = 2 * format.HourMS

// classesModel contains the samples that must be found, may be found, and must not be found.
type classesModel struct {
	keep  []retention.Durations
	facts [classesSeries]map[int64][]*classesFact // by time
}

func newClassesModel(keep []retention.Durations) *classesModel {
	m := &classesModel{keep: keep}
	for s := range m.facts {
		m.facts[s] = map[int64][]*classesFact{}
	}
	return m
}

// kept returns the time after which a sample is within the retention, at a resolution, of every class that it may be
// stored in.
func (m *classesModel) kept(classes uint, res rollup.Resolution, now int64) int64 {
	at := int64(-format.MaxTime)
	for class, k := range m.keep {
		if d := k.Duration(res); classes&(1<<class) != 0 && d != 0 {
			at = max(at, now-d.Milliseconds())
		}
	}
	return at
}

// put records samples that are sent now, in the class of their day. rawless is true if they are stored only in rollups.
func (m *classesModel) put(
	series int, times []int64, v float64, classOn func(t int64) int64, now int64, acked, rawless bool,
) {
	at := func(t, width int64) int64 { return -format.FloorDiv(-t, width) * width }
	// rivals contains the buckets and hours that already have samples. gone contains the slots and days for which raw
	// rows or 5m rollups of earlier samples may be missing.
	rivals, gone := map[[2]int64]bool{}, map[[2]int64]bool{}
	for t, list := range m.facts[series] {
		for _, f := range list {
			for _, width := range []int64{rollup.FiveMinutes.Width(), rollup.OneHour.Width()} {
				rivals[[2]int64{width, at(t, width)}] = rivals[[2]int64{width, at(t, width)}] || f.stands()
			}
			if m.kept(f.classes|1<<classOn(t), rollup.Raw, now) > at(t, format.DayMS)-format.DayMS {
				gone[[2]int64{slotMS, at(t, slotMS)}] = true
			}
			if m.kept(f.classes|1<<classOn(t), rollup.FiveMinutes, now) > at(t, format.Window5mMS)-2*format.Window5mMS {
				gone[[2]int64{format.DayMS, at(t, format.DayMS)}] = true
			}
		}
	}
	for _, t := range times {
		f := &classesFact{v: v, acked: acked, sealed: rawless, classes: 1 << classOn(t)}
		fresh := !rivals[[2]int64{rollup.FiveMinutes.Width(), at(t, rollup.FiveMinutes.Width())}]
		freshHour := !rivals[[2]int64{rollup.OneHour.Width(), at(t, rollup.OneHour.Width())}]
		f.firm[rollup.Raw] = acked && !rawless
		f.firm[rollup.FiveMinutes] = acked && (fresh || !rawless && !gone[[2]int64{slotMS, at(t, slotMS)}])
		f.firm[rollup.OneHour] = f.firm[rollup.FiveMinutes] &&
			(freshHour || !gone[[2]int64{format.DayMS, at(t, format.DayMS)}])
		m.facts[series][t] = append(m.facts[series][t], f)
	}
}

// delete records a delete. done is true if it succeeded, and false if it may still be applied.
func (m *classesModel) delete(series int, start, end int64, done bool) {
	for t, list := range m.facts[series] {
		if t < start || t > end {
			continue
		}
		for _, f := range list {
			f.deleted, f.mayBe = f.deleted || done, true
		}
	}
}

// inClass records that unsealed samples of a series may now be stored in another class.
func (m *classesModel) inClass(series, class int) {
	for _, list := range m.facts[series] {
		for _, f := range list {
			if !f.sealed {
				f.classes |= 1 << class
			}
		}
	}
}

// seal records that all samples are sealed, each in the class of its day.
func (m *classesModel) seal(classOn func(series int, t int64) int64) {
	for s, times := range m.facts {
		for t, list := range times {
			for _, f := range list {
				if !f.sealed {
					f.sealed, f.classes = true, 1<<classOn(s, t)
				}
			}
		}
	}
}

// classesBucket names a bucket of a series.
type classesBucket struct {
	series int
	end    int64
}

// judgeRaw returns a description of the first problem in an answer of raw samples, or "". raw contains the answer by
// series and time.
func (m *classesModel) judgeRaw(now int64, raw [classesSeries]map[int64]float64) string {
	for s, times := range raw {
		for t, got := range times {
			known := false
			for _, f := range m.facts[s][t] {
				known = known || f.v == got && f.stands()
			}
			if !known {
				return fmt.Sprintf("series %d at %s: %v was deleted or never written", s, showTime(t), got)
			}
		}
	}
	for s, times := range m.facts {
		for t, list := range times {
			for _, f := range list {
				if got, shown := raw[s][t]; f.firm[rollup.Raw] && !f.mayBe && t > m.kept(f.classes, rollup.Raw, now) &&
					(!shown || got < f.v) {
					return fmt.Sprintf("series %d at %s: %v is missing", s, showTime(t), f.v)
				}
			}
		}
	}
	return ""
}

// open returns the ends of slots that are past the raw retention of a class but still have unsealed samples. Until such
// a slot is sealed, queries read its samples instead of rollups, and its samples in other classes may be missing.
func (m *classesModel) open(now int64) map[int64]bool {
	slots := map[int64]bool{}
	for _, times := range m.facts {
		for t, list := range times {
			for _, f := range list {
				if !f.sealed && t-slotMS <= m.kept(math.MaxUint, rollup.Raw, now) {
					slots[-format.FloorDiv(-t, slotMS)*slotMS] = true
				}
			}
		}
	}
	return slots
}

// judgeBuckets returns a description of the first problem in an answer of buckets, or "". whole is true if the answer
// includes all classes.
func (m *classesModel) judgeBuckets(now int64, res rollup.Resolution, counts map[classesBucket]int, whole bool) string {
	most, least, open := map[classesBucket]int{}, map[classesBucket]int{}, m.open(now)
	for s, times := range m.facts {
		for t, list := range times {
			b := classesBucket{s, -format.FloorDiv(-t, res.Width()) * res.Width()}
			stands, firm := 0, 0
			for _, f := range list {
				if f.stands() {
					stands = 1
				}
				// On the day that contains the boundary of hidden samples, buckets may not reflect a delete until the
				// next Expire.
				told := m.kept(f.classes, rollup.Raw, now)
				cut := b.end > format.FloorDiv(told-1, format.DayMS)*format.DayMS && b.end-res.Width() < told
				if f.firm[res] && !f.mayBe && b.end-res.Width() >= m.kept(f.classes, res, now) && !cut &&
					!open[-format.FloorDiv(-t, slotMS)*slotMS] {
					firm = 1
				}
			}
			most[b] += stands
			least[b] += firm
		}
	}
	for b, n := range counts {
		if n > most[b] {
			return fmt.Sprintf("series %d: the %s bucket until %s counts %d samples, %d stand",
				b.series, res, showTime(b.end), n, most[b])
		}
	}
	for b, n := range least {
		if whole && counts[b] < n {
			return fmt.Sprintf("series %d: the %s bucket until %s counts %d samples of at least %d",
				b.series, res, showTime(b.end), counts[b], n)
		}
	}
	return ""
}
