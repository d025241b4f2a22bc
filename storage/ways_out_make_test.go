package storage

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A history of the removal paths tests everything that hides, drops, deletes, cleans, expires and returns rows. Its
// lines:
//
//	ways base=2026-05-01T12:00:00Z engine=pebble processes=1 probes=false raw=720h 5m=0s 1h=0s
//	                          engine: memory; pebble, which loses unsynced writes; or expiring, shared by the processes,
//	                          which expires rows, as Cassandra does
//	p1 write S AGO N          N samples of series S, a minute apart, starting AGO ago
//	p1 import S AGO N         the same, imported
//	p1 seal / p1 round        seals all; one round of a server's loop
//	p1 expire                 advances retention boundaries, and drops
//	p1 delete S FROM TO       deletes whole hours of a series between two ages; S is * for all series
//	p1 cancel N               cancels the next delete's context at its nth call of the engine
//	p1 fault KIND TABLE N     in the next operation of p1: fail, lose or withhold the nth write to a table
//	p1 late                   withheld writes are applied
//	p1 clean / p1 workoff     cleans tombstones; recomputes rollups
//	p1 restart RAW 5M 1H      stops, and starts with other retentions
//	p1 crash PERCENT RAW 5M 1H    the same after a power cut that keeps this share of unsynced writes
//	p1 skew DURATION          sets the error of its clock
//	pass DURATION             advances the time, while processes run their rounds
//	copy / back               copies the rows that can reappear; they reappear after the engine has removed its deletes
type waysMaker struct {
	rng       *rand.Rand
	out       history
	engine    string
	processes int
	retention [3]time.Duration
	skewed    []bool
	copied    bool
}

func (m *waysMaker) add(format string, args ...any) {
	m.out = append(m.out, fmt.Sprintf(format, args...))
}

func (m *waysMaker) oneIn(n int) bool { return m.rng.IntN(n) == 0 }

func makeWaysHistory(seed uint64, kind string) history {
	m := &waysMaker{rng: rand.New(rand.NewPCG(seed, 14)), engine: kind, processes: 1}
	if kind == "expiring" {
		m.processes = 2
	}
	m.skewed = make([]bool, m.processes)
	m.draw()
	m.add("ways base=2026-05-01T12:00:00Z engine=%s processes=%d probes=%t raw=%v 5m=%v 1h=%v",
		kind, m.processes, seed%2 == 1, m.retention[0], m.retention[1], m.retention[2])
	for range 45 + m.rng.IntN(45) {
		m.step()
	}
	return m.out
}

// draw chooses random retentions. Rollups are kept indefinitely, except that 5m rollups are sometimes kept for only 20
// days longer than raw samples.
func (m *waysMaker) draw() {
	m.retention = [3]time.Duration{[]time.Duration{0, 2 * day, 10 * day, 10 * day, 30 * day, 365 * day}[m.rng.IntN(6)]}
	if m.engine != "expiring" && m.retention[0] > 0 && m.oneIn(4) {
		m.retention[1] = m.retention[0] + 20*day
	}
}

// ago returns a random age for the first sample.
func (m *waysMaker) ago() time.Duration {
	minutes := func(from, to time.Duration) time.Duration {
		return (from + time.Duration(m.rng.Int64N(int64(to-from)))).Truncate(time.Hour / 2)
	}
	switch m.rng.IntN(8) {
	case 0, 1, 2:
		return minutes(time.Hour, 3*time.Hour)
	case 3:
		return minutes(3*time.Hour, 2*day)
	case 4:
		return minutes(2*day, 10*day)
	case 5, 6:
		return minutes(10*day, 60*day)
	default:
		return minutes(60*day, 300*day)
	}
}

func (m *waysMaker) samples(p int, verb string) {
	m.add("p%d %s %d %v %d", p, verb, m.rng.IntN(waysSeries), m.ago(), 1+m.rng.IntN(30))
}

func (m *waysMaker) fault(p int, tables ...string) {
	if m.oneIn(3) {
		m.add(
			"p%d fault %s %s %d", p, []string{"fail", "lose", "withhold"}[m.rng.IntN(3)],
			tables[m.rng.IntN(len(tables))], 1+m.rng.IntN(3),
		)
	}
}

func (m *waysMaker) remove(p int) {
	switch m.rng.IntN(5) {
	case 0, 1:
		m.fault(p, "delete", "delete", "tenants", "raw")
	case 2:
		m.add("p%d cancel %d", p, 1+m.rng.IntN(30))
	}
	series := fmt.Sprint(m.rng.IntN(waysSeries))
	if m.oneIn(6) {
		series = "*"
	}
	from := m.ago() + time.Duration(m.rng.IntN(3))*time.Hour
	to := from - time.Duration(1+m.rng.IntN(4))*time.Hour
	switch m.rng.IntN(3) {
	case 0:
		from, to = 400*day, -2*time.Hour
	case 1:
		to = -time.Hour
	}
	m.add("p%d delete %s %v %v", p, series, from, to)
}

func (m *waysMaker) step() {
	p := 1 + m.rng.IntN(m.processes)
	switch m.rng.IntN(34) {
	case 0, 1, 2, 3, 4, 5:
		m.samples(p, "write")
	case 6, 7, 8, 9:
		m.fault(p, "raw", "r5m", "r1h", "sealed", "catalog", "windows")
		m.samples(p, "import")
	case 10, 11:
		m.fault(p, "raw", "r5m", "r1h", "sealed", "catalog", "windows", "stage", "defined")
		m.add("p%d seal", p)
	case 12:
		m.add("p%d round", p)
	case 13, 14, 15:
		m.remove(p)
	case 16, 17:
		m.fault(p, "delete", "raw", "r5m", "r1h")
		m.add("p%d clean", p)
	case 18:
		m.add("p%d workoff", p)
	case 19, 20:
		m.fault(p, "windows", "r5m")
		m.add("p%d expire", p)
	case 21, 22, 23:
		m.draw()
		m.add("p%d restart %v %v %v", p, m.retention[0], m.retention[1], m.retention[2])
		if m.oneIn(2) { // The process is started with a wrong retention.
			m.add("p%d expire", p)
			if m.oneIn(2) {
				m.samples(p, "import")
			}
			m.add("pass %v", time.Duration(1+m.rng.IntN(100))*time.Hour)
			m.draw()
			m.add("p%d restart %v %v %v", p, m.retention[0], m.retention[1], m.retention[2])
			m.add("p%d expire", p)
		}
	case 24:
		m.add("p%d crash %d %v %v %v", p, m.rng.IntN(101), m.retention[0], m.retention[1], m.retention[2])
	case 25, 26:
		m.wrongClock(p)
	case 27, 28, 29, 30:
		d := []time.Duration{
			time.Duration(m.rng.IntN(120)) * time.Minute, time.Duration(m.rng.IntN(72)) * time.Hour,
			time.Duration(m.rng.IntN(12)) * day,
		}[m.rng.IntN(3)]
		if m.skewed[p-1] {
			d %= time.Hour
		}
		m.add("pass %v", d)
	case 31, 32:
		if m.copied && m.oneIn(2) {
			m.add("back")
		} else {
			m.add("copy")
			m.copied = true
		}
	default:
		m.add("p%d late", p)
	}
}

// wrongClock makes the clock of process p wrong by days, or corrects it, usually with other operations in between.
func (m *waysMaker) wrongClock(p int) {
	if m.skewed[p-1] {
		m.add("p%d skew 0s", p)
		m.skewed[p-1] = false
		return
	}
	off := time.Duration(10+m.rng.IntN(400)) * day
	if m.oneIn(2) {
		off = -off
	}
	m.skewed[p-1] = true
	m.add("p%d skew %v", p, off)
	for range 1 + m.rng.IntN(4) {
		switch m.rng.IntN(7) {
		case 0:
			m.samples(p, "write")
		case 1:
			m.add("p%d seal", p)
		case 2:
			m.remove(p)
		case 3:
			m.add("p%d clean", p)
		case 4:
			m.samples(p, "import")
		default:
			m.add("p%d expire", p)
			m.add("p%d round", p)
		}
	}
	after := m.rng.IntN(4)
	switch after {
	case 0: // The clock stays wrong and is eventually trusted.
		if m.engine != "expiring" {
			m.add("pass %v", time.Duration(1+m.rng.IntN(20))*12*time.Hour)
		}
	case 1: // The clock stays wrong for some time.
	default:
		m.add("p%d skew 0s", p)
		m.skewed[p-1] = false
	}
}
