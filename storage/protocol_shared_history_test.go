package storage

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A history of multiple processes on one engine has the lines of a history of one process, each preceded by the name of
// a process. All processes share a clock.
//
//	store base=2026-05-01T12:00:00Z retention=720h slot=2h processes=3 blob=100
//	                                              blob: the size of full blobs, bytes; 0: the default
//	p1 write … / p2 query … / p1 seal 0 1 / …     as in the history of one process
//	p2 forget                                     releases samples sealed by others
//	p2 skew DURATION                              sets how fast its clock is
//	p2 beat / p2 silent / p2 heard                sends a heartbeat; stops sending; sends again
//	p2 down / p2 up                               stops the process, and starts it later
//	clock DURATION                                advances the time for all
//	order N                                       applies the batches of a write in another order
//	at N p2 … / at wN clock …                     runs within a call of the next operation
type sharedMaker struct {
	historyMaker
	processes int
	skews     []time.Duration
}

// maxSkew bounds the error of a clock, so that two clocks differ by less than a day.
const maxSkew = 12*time.Hour - 5*time.Second

func makeSharedHistory(seed uint64) history {
	m := &sharedMaker{historyMaker: historyMaker{rng: rand.New(rand.NewPCG(seed, 2))}, processes: 3}
	m.processes -= m.rng.IntN(2)
	base := "2026-05-01T12:00:00Z"
	m.base, _ = time.Parse(time.RFC3339, base)
	m.slot = []time.Duration{2 * time.Hour, 2 * time.Hour, time.Hour, 12 * time.Hour}[m.rng.IntN(4)]
	m.deletes = seed%2 == 1
	blob := []int{0, 0, 40, 100}[m.rng.IntN(4)]
	m.add(
		"store base=%s retention=%s slot=%s processes=%d blob=%d probes=%t", base, 30*24*time.Hour, m.slot, m.processes,
		blob, m.oneIn(2),
	)
	m.skews = make([]time.Duration, m.processes)
	if m.oneIn(2) {
		for i := range m.processes {
			m.skew(i)
		}
	}
	for n := 25 + m.rng.IntN(45); n > 0; n-- {
		if m.oneIn(15) {
			m.scene()
		} else {
			m.sharedStep()
		}
	}
	return m.out
}

func (m *sharedMaker) skew(i int) {
	d := time.Duration(m.rng.Int64N(int64(2*maxSkew))) - maxSkew
	switch m.rng.IntN(3) {
	case 0:
		d = maxSkew
	case 1:
		d = -maxSkew
	}
	m.setSkew(i, d.Truncate(time.Second))
}

func (m *sharedMaker) setSkew(i int, d time.Duration) {
	m.skews[i] = d
	m.add("p%d skew %v", i+1, d)
}

func (m *sharedMaker) someone() int { return m.rng.IntN(m.processes) }

func (m *sharedMaker) sharedStep() {
	p := m.someone()
	op := m.sharedOperation(p)
	if m.deletes && m.oneIn(8) {
		op = m.remove()
	}
	kind, _, _ := strings.Cut(op, " ")
	if kind == "clock" {
		m.add("%s", op)
		return
	}
	if m.oneIn(6) && kind != "read" && kind != "late" && kind != "letgo" {
		m.add("fault %s", m.sharedFault(kind))
	}
	if m.oneIn(3) {
		m.add("order %d", 1+m.rng.IntN(6))
	}
	for n := m.rng.IntN(4); n > 0; n-- {
		if nested := m.sharedNested(p, kind); nested != "" {
			m.add("at %s %s", m.sharedCall(kind), nested)
		}
	}
	if (kind == "write" || kind == "bulk") && m.oneIn(5) {
		m.add("with %s", m.write())
	}
	m.add("p%d %s", p+1, op)
	if m.oneIn(2) {
		m.add("p%d %s", 1+m.someone(), m.query())
	}
}

func (m *sharedMaker) sharedCall(kind string) string {
	n := 14
	if kind == "write" || kind == "bulk" {
		return fmt.Sprintf("w%d", 1+m.rng.IntN(8))
	}
	if kind == "query" || kind == "open" || m.oneIn(3) {
		return fmt.Sprint(1 + m.rng.IntN(40))
	}
	if kind == "round" || kind == "sealall" {
		n = 30
	}
	return fmt.Sprintf("w%d", 1+m.rng.IntN(n))
}

func (m *sharedMaker) sharedOperation(p int) string {
	switch m.rng.IntN(30) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		return m.write()
	case 8, 9, 10:
		return m.query()
	case 11, 12:
		return m.round()
	case 13, 14:
		return "sealall"
	case 15, 16:
		return fmt.Sprintf("seal %d %d", m.rng.IntN(protocolPartitions), m.rng.IntN(3))
	case 17, 18:
		return "forget"
	case 19, 20, 21:
		return m.sharedClock(p)
	case 22:
		return fmt.Sprintf("unlist %d", m.rng.IntN(protocolPartitions))
	case 23:
		return []string{"crash", "restart"}[m.rng.IntN(2)]
	case 24:
		return []string{"down", "up", "up"}[m.rng.IntN(3)]
	case 25:
		return []string{"silent", "heard", "heard", "beat"}[m.rng.IntN(4)]
	case 26:
		m.skew(p)
		return m.query()
	case 27:
		return []string{"late", "letgo"}[m.rng.IntN(2)]
	case 28:
		m.opens++
		return fmt.Sprintf("open q%d %s", m.opens, m.tenant())
	default:
		if m.opens > 0 {
			return fmt.Sprintf("read q%d", 1+m.rng.IntN(m.opens))
		}
		return m.query()
	}
}

// sharedClock returns an advance of the time: by seconds, for the rules about running writes, by hours or days, or
// until a slot becomes old by a process' clock.
func (m *sharedMaker) sharedClock(p int) string {
	d := time.Duration(m.rng.IntN(100)) * time.Second
	switch m.rng.IntN(7) {
	case 0, 1:
		d = time.Duration(m.rng.IntN(90)) * time.Minute
	case 2:
		d = time.Duration(m.rng.IntN(12)) * time.Hour
	case 3:
		d = time.Duration(m.rng.IntN(72)) * time.Hour
	case 4, 5:
		age := []time.Duration{24 * time.Hour,
			48 * time.Hour}[m.rng.IntN(2)] - time.Duration(m.rng.IntN(30))*time.Second
		clock := m.base.Add(m.now + m.skews[p])
		end := clock.Add(-age).Truncate(m.slot).Add(m.slot)
		d = end.Add(age).Sub(clock)
	}
	m.now += d
	return fmt.Sprintf("clock %v", d)
}

func (m *sharedMaker) sharedFault(kind string) string {
	n := 1 + m.rng.IntN(3)
	if m.oneIn(4) {
		return fmt.Sprintf("die %s %d", []string{"before", "after"}[m.rng.IntN(2)], 1+m.rng.IntN(10))
	}
	if kind == "query" || kind == "open" || m.oneIn(5) {
		return fmt.Sprintf("scan %s %d", []string{
			"stage", "sealed", "raw", "catalog", "low", "pending", "windows", "tails", "processes", "defined",
		}[m.rng.IntN(10)], 1+m.rng.IntN(8))
	}
	tables := []string{"stage", "raw", "catalog", "sealed", "pending", "low", "defined", "defined"}
	switch kind {
	case "delete", "clean", "workoff":
		tables = append(tables, "delete", "r5m", "r1h")
	case "write", "bulk":
		tables = []string{"stage", "stage", "pending", "tails"}
	case "crash", "restart", "up", "beat":
		tables = []string{"processes"}
	}
	return fmt.Sprintf(
		"%s %s %d", []string{"fail", "lose", "withhold"}[m.rng.IntN(3)], tables[m.rng.IntN(len(tables))], n,
	)
}

// sharedNested returns an operation that runs within an operation of process p: an operation of p, of another process,
// or of the clock.
func (m *sharedMaker) sharedNested(p int, kind string) string {
	if m.oneIn(6) {
		d := time.Duration(m.rng.IntN(29)) * time.Second
		if m.oneIn(5) {
			d = []time.Duration{31 * time.Second, 20 * time.Minute, 26 * time.Hour}[m.rng.IntN(3)]
		}
		m.now += d
		return fmt.Sprintf("clock %v", d)
	}
	other := m.someone()
	if other == p && m.oneIn(4) {
		return fmt.Sprintf("p%d forget", p+1)
	}
	if other == p {
		nested := m.nested(kind)
		if verb, _, _ := strings.Cut(nested, " "); verb == "" || verb == "jump" || verb == "clock" {
			return ""
		}
		return fmt.Sprintf("p%d %s", p+1, nested)
	}
	if m.deletes && m.oneIn(8) {
		return fmt.Sprintf("p%d %s", other+1, m.remove())
	}
	switch m.rng.IntN(12) {
	case 0, 1:
		return fmt.Sprintf("p%d %s", other+1, m.write())
	case 2, 3, 4:
		return fmt.Sprintf("p%d query %s", other+1, m.tenant())
	case 5, 6:
		return fmt.Sprintf("p%d sealall", other+1)
	case 7, 8:
		return fmt.Sprintf("p%d %s", other+1, m.round())
	case 9:
		return fmt.Sprintf("p%d unlist %d", other+1, m.rng.IntN(protocolPartitions))
	case 10:
		return fmt.Sprintf("p%d forget", other+1)
	default:
		return fmt.Sprintf("p%d %s", other+1, []string{"crash", "restart", "down", "up", "letgo"}[m.rng.IntN(5)])
	}
}
