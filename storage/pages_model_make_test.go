package storage

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
)

// A history of pages tests pages of multiple levels. Its lines:
//
//	pages base=2026-05-01T12:00:00Z engine=memory   engine: memory, or pebble
//	write G AT N           N samples, a minute apart, starting AT after base, of each series of some groups
//	import G AT N          the same, imported
//	beside G AT N G AT N   writes and seals the first samples while it imports the second ones, with queries
//	seal                   seals all
//	delete G FROM TO       deletes whole hours of one group, between two times
//	clean / workoff        cleans tombstones; recomputes rollups
//	expire                 advances retention boundaries, and drops
//	pass DURATION          advances the time in steps of 12 hours, with an expire in each
//	skew DURATION          sets the error of the clock
//	compact                compacts rollups; answers must not change
//	cutcompact N           the same, canceled at a step of the engine
//	besidecompact G AT N   the same, while samples are written and sealed, with queries
//	amidcompact WORK …     the same, during other work: workoff, clean, seal, expire, again (another compact), end
//	                       (it is canceled)
//	again                  stops, and starts with the same options
//	restart LEAST CLASSES RAW 5M 1H    stops, and starts with other options: LEAST new series make pages; CLASSES is
//	                       none, or groups with their own class: those of class x, a slash, and those of y
type pagesMaker struct {
	rng *rand.Rand
	out history
	// passed is the time since base, and off the clock's error at that time. used contains times of samples, relative
	// to base.
	passed, off time.Duration
	used        []time.Duration
}

func (m *pagesMaker) add(format string, args ...any) {
	m.out = append(m.out, fmt.Sprintf(format, args...))
}

func makePagesHistory(seed uint64, kind string) history {
	m := &pagesMaker{rng: rand.New(rand.NewPCG(seed, 15))}
	m.add("pages base=2026-05-01T12:00:00Z engine=%s", kind)
	m.restart()
	for range 20 + m.rng.IntN(20) {
		m.step()
	}
	return m.out
}

// groupsOf returns some random groups.
func (m *pagesMaker) groupsOf() string {
	return []string{"abcd", "abcd", "ab", "ac", "bd", "a", "b", "c", "d"}[m.rng.IntN(9)]
}

// at returns a random start for samples: the start of other samples, or an age by the clock.
func (m *pagesMaker) at() time.Duration {
	if len(m.used) > 0 && m.rng.IntN(3) == 0 {
		return m.used[m.rng.IntN(len(m.used))] + time.Duration(m.rng.IntN(5)-2)*time.Minute/2
	}
	span := [][2]time.Duration{
		{time.Hour, 4 * time.Hour}, {time.Hour, 4 * time.Hour}, {4 * time.Hour, 2 * day}, {8 * day, 30 * day},
		{30 * day, 70 * day},
	}[m.rng.IntN(5)]
	ago := span[0] + time.Duration(m.rng.Int64N(int64(span[1]-span[0])))
	at := (m.passed + m.off - ago).Truncate(time.Hour / 2)
	m.used = append(m.used, at)
	return at
}

// pass advances the time.
func (m *pagesMaker) pass(d time.Duration) {
	m.add("pass %v", d)
	m.passed += d
}

// samples returns random groups with a time and a number of samples.
func (m *pagesMaker) samples() string {
	return fmt.Sprintf("%s %v %d", m.groupsOf(), m.at(), 1+m.rng.IntN(4))
}

// late returns random groups with samples that start at the same time as other samples, or between them.
func (m *pagesMaker) late(at time.Duration) string {
	return fmt.Sprintf("%s %v 3", m.groupsOf(), at+time.Duration(m.rng.IntN(3))*time.Minute/2)
}

// delete adds a random delete, usually of existing samples.
func (m *pagesMaker) delete() {
	at := m.at() + time.Duration(m.rng.IntN(2))*time.Hour
	m.add("delete %s %v %v", m.groupsOf()[:1], at-time.Duration(1+m.rng.IntN(3))*time.Hour, at+time.Hour)
}

// restart adds a restart with random options: raw samples have a short retention, or an indefinite one.
func (m *pagesMaker) restart() {
	raw := []time.Duration{0, 10 * day, 10 * day, 20 * day, 90 * day}[m.rng.IntN(5)]
	five, hour := time.Duration(0), time.Duration(0)
	if raw > 0 && m.rng.IntN(3) == 0 {
		if five = raw + 15*day; m.rng.IntN(2) == 0 {
			hour = five + 20*day
		}
	}
	classes := []string{"none", "a/b", "b/a", "ac/", "/bd", "d/c"}[m.rng.IntN(6)]
	least := []string{"1", "1", "5", "1000"}[m.rng.IntN(4)]
	m.add("restart %s %s %v %v %v", least, classes, raw, five, hour)
}

// again adds samples at some time, the operations of between, and then late samples at the same time, of the same
// series and of others.
func (m *pagesMaker) again(between func()) {
	at := m.at()
	m.add("write %s", m.late(at))
	m.add("seal")
	between()
	m.add("%s %s", []string{"write", "write", "import"}[m.rng.IntN(3)], m.late(at))
	m.add("seal")
}

func (m *pagesMaker) step() {
	switch m.rng.IntN(24) {
	case 0, 1, 2:
		m.add("write %s", m.samples())
	case 3, 4:
		m.add("import %s", m.samples())
	case 5, 6, 7:
		at := m.at()
		m.add("beside %s %s", m.late(at), m.late(at))
	case 8, 9:
		m.add("seal")
	case 10, 11, 12:
		m.delete()
	case 13:
		m.add("clean")
	case 14:
		m.add("workoff")
	case 15:
		m.again(func() { m.restart() })
	case 16, 17:
		m.dropped()
	case 18, 19:
		m.wrongClock()
	case 20:
		m.restart()
	case 21:
		m.add("expire")
	default:
		m.pass([]time.Duration{
			time.Duration(1+m.rng.IntN(40)) * time.Hour, time.Duration(1+m.rng.IntN(12)) * day,
		}[m.rng.IntN(2)])
	}
}

// dropped lets samples expire, usually permanently, and then writes samples at the same time with another retention.
func (m *pagesMaker) dropped() {
	m.again(func() {
		m.restart()
		m.pass(time.Duration(5+m.rng.IntN(16)) * day)
		m.restart()
	})
}

// skew sets the clock's error.
func (m *pagesMaker) skew(off time.Duration) {
	m.add("skew %v", off)
	m.off = off
}

// wrongClock makes the clock leap, and usually leap back. Samples are sealed in between.
func (m *pagesMaker) wrongClock() {
	if m.off != 0 {
		m.skew(0)
		return
	}
	at := m.passed - time.Duration(1+m.rng.IntN(50))*time.Hour
	m.add("write %s", m.late(at))
	m.add("seal")
	m.skew([]time.Duration{25 * time.Hour, 25 * time.Hour, -25 * time.Hour, 100 * day}[m.rng.IntN(4)])
	for _, at := range []time.Duration{at, m.passed + m.off - time.Hour} {
		m.add("%s %s", []string{"write", "import"}[m.rng.IntN(2)], m.late(at))
	}
	m.add("seal")
	if m.rng.IntN(3) > 0 {
		m.skew(0)
		m.add("write %s", m.late(at))
		m.add("seal")
	}
}

// pagesGroups returns the series of histories, by group. The ids of the series of group a have the same first bits, as
// have the ids of group b, so that each of these groups makes pages of a higher level when it is written alone.
var pagesGroups = sync.OnceValue(func() map[byte][]labels.Labels {
	return map[byte][]labels.Labels{
		'a': seriesAlike("m", 'a', 8, 8), 'b': seriesAlike("m", 'b', 6, 8), 'c': seriesAlike("m", 'c', 0, 8),
		'd': seriesAlike("n", 'd', 0, 5),
	}
})

// seriesAlike returns n series of a metric and group whose ids have the same first bits.
func seriesAlike(metric string, group byte, bits, n int) (list []labels.Labels) {
	for i := 0; len(list) < n; i++ {
		ls := labels.FromStrings(labels.MetricName, metric, "group", string(group), "host", fmt.Sprint(i))
		id := format.SeriesIDOf(ls)
		if bits == 0 || binary.BigEndian.Uint64(id[:8])>>(64-bits) == uint64(group)%(1<<bits) {
			list = append(list, ls)
		}
	}
	return list
}

// seriesOfGroups returns the series of the given groups in a fixed order.
func seriesOfGroups(groups string) (list []labels.Labels) {
	for _, g := range []byte(groups) {
		list = append(list, pagesGroups()[g]...)
	}
	slices.SortFunc(list, func(a, b labels.Labels) int { return strings.Compare(a.String(), b.String()) })
	return list
}
