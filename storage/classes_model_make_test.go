package storage

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A history of classes has series that change their class, within a day or a week, and deletes of their samples at any
// age. Its lines:
//
//	classes base=2026-05-01T00:00:00Z engine=pebble keep=48h,72h,2160h/48h,1440h,0s/…
//	                          engine: memory; pebble, which loses unsynced writes in a power cut; or expiring, whose
//	                          rows expire. Retentions of raw, 5m and 1h of each class, the default one first; 0s is
//	                          indefinite
//	write S AGO N             N samples of series S, ten minutes apart, starting AGO ago
//	import S AGO N            the same, imported
//	in S CLASS                the store is restarted with S in another class
//	other C D OFF S AGO N     another process with the first two series in the classes C and D, and a clock with
//	                          the error OFF, imports samples
//	seal                      seals all
//	delete S FROM TO          deletes whole hours of a series between two ages
//	clean / workoff           cleans tombstones; rebuilds rollups
//	fault KIND TABLE N        in the next operation: fail, lose or withhold the nth write to a table
//	restart / crash PERCENT   restarts; cuts the power, which keeps this share of unsynced writes
//	pass DURATION             seals all and advances the time, in steps of at most a day, with an Expire after each
type classesMaker struct {
	rng    *rand.Rand
	kind   string
	out    history
	passed time.Duration
	// written contains the time ranges of written samples, by series.
	written []classesWritten
}

type classesWritten struct {
	series   int
	from, to time.Duration // since the base
}

const (
	classesSeries = 2
	classesStep   = 10 * time.Minute
	// classesLead is the min time between the oldest samples and the base.
	classesLead = 30 * time.Hour
)

func (m *classesMaker) add(format string, args ...any) {
	m.out = append(m.out, fmt.Sprintf(format, args...))
}
func (m *classesMaker) oneIn(n int) bool { return m.rng.IntN(n) == 0 }

func (m *classesMaker) days(list ...int) time.Duration {
	return time.Duration(list[m.rng.IntN(len(list))]) * day
}

func makeClassesHistory(seed uint64, kind string) history {
	m := &classesMaker{rng: rand.New(rand.NewPCG(seed, 25)), kind: kind}
	keeps, longest := "", time.Duration(0)
	for class := range 2 + m.rng.IntN(2) {
		raw := m.days(2, 2, 2, 5, 12)
		fine := raw + m.days(0, 1, 1, 10, 20, 50)
		hours := fine + m.days(0, 8, 20, 40, 80)
		longest = max(longest, hours)
		if m.oneIn(5) {
			hours = 0
		}
		if class > 0 {
			keeps += "/"
		}
		keeps += fmt.Sprintf("%v,%v,%v", raw, fine, hours)
	}
	m.add("classes base=2026-05-0%dT00:00:00Z engine=%s keep=%s", 1+m.rng.IntN(7), kind, keeps)
	for range 3 + m.rng.IntN(5) {
		m.live()
	}
	for range 8 + m.rng.IntN(16) {
		m.step()
	}
	m.add("clean")
	for m.passed < longest+15*day {
		m.pass(m.days(1, 3, 6, 10))
	}
	return m.out
}

func (m *classesMaker) pass(d time.Duration) {
	m.passed += d
	m.add("pass %v", d)
}

func (m *classesMaker) class(series int) { m.add("in %d %d", series, m.rng.IntN(3)) }

// live writes samples at the current time, and may move a series to another class.
func (m *classesMaker) live() {
	for s := range classesSeries {
		if m.oneIn(3) {
			continue
		}
		m.write("write", s, m.passed-time.Duration(m.rng.IntN(10))*time.Hour)
	}
	if m.oneIn(2) {
		m.add("seal")
	}
	if m.oneIn(2) {
		m.class(m.rng.IntN(classesSeries))
	}
	m.pass([]time.Duration{time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day}[m.rng.IntN(6)])
}

func (m *classesMaker) write(verb string, series int, from time.Duration) {
	n := 1 + m.rng.IntN(36)
	if verb == "write" {
		n = min(n, int((m.passed-from)/classesStep)+1)
	}
	m.written = append(m.written, classesWritten{series, from, from + time.Duration(n)*classesStep})
	m.add("%s %d %v %d", verb, series, m.passed-from, n)
}

// near returns a random series and a random time near its written samples.
func (m *classesMaker) near() (int, time.Duration) {
	w := m.written[m.rng.IntN(len(m.written))]
	at := w.from + time.Duration(m.rng.Int64N(int64(w.to-w.from)+1))
	if m.oneIn(3) {
		at += time.Duration(m.rng.IntN(13)-6) * time.Hour
	}
	return w.series, min(at.Truncate(classesStep), m.passed)
}

func (m *classesMaker) fault() {
	if m.oneIn(3) {
		m.add(
			"fault %s %s %d", []string{"fail", "fail", "lose", "withhold"}[m.rng.IntN(4)],
			[]string{"raw", "r5m", "r1h", "sealed", "delete"}[m.rng.IntN(5)], 1+m.rng.IntN(5),
		)
	}
}

func (m *classesMaker) step() {
	if len(m.written) == 0 {
		m.live()
		return
	}
	switch m.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		series, from := m.near()
		to := from + time.Duration(1+m.rng.IntN(5))*time.Hour
		if m.oneIn(8) {
			m.fault()
		}
		m.add("delete %d %v %v", series, m.passed-from, m.passed-to)
	case 6, 7, 8:
		m.fault()
		m.add("clean")
	case 9:
		m.fault()
		m.add("workoff")
	case 10:
		series, at := m.near()
		m.write("write", series, at)
		m.fault()
		m.add("seal")
	case 11:
		series, at := m.near()
		m.fault()
		m.write("import", series, at)
	case 12, 13:
		if m.kind == "expiring" && m.oneIn(2) {
			series, at := m.near()
			m.write(
				fmt.Sprintf("other %d %d %v", m.rng.IntN(3), m.rng.IntN(3), time.Duration(m.rng.IntN(41)-20)*time.Hour),
				series, at,
			)
			return
		}
		m.class(m.rng.IntN(classesSeries))
	case 14:
		m.add("%s", []string{"restart", "crash 0", "crash 50", "crash 100"}[m.rng.IntN(4)])
	case 15:
		m.live()
	default:
		m.pass(m.days(1, 2, 4, 8, 15, 25))
	}
}
