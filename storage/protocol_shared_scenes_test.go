package storage

import (
	"fmt"
	"time"
)

// Scenes are sequences of operations that test the limits of a rule, and that random histories would rarely contain.

func (m *sharedMaker) scene() {
	switch m.rng.IntN(4) {
	case 0:
		m.gapScene()
	case 1:
		m.leanScene()
	case 2:
		m.edgeScene(48*time.Hour, m.sealOverEdge)
	default:
		m.edgeScene(24*time.Hour, m.writeOverEdge)
	}
}

// others returns three random processes. The first two are different.
func (m *sharedMaker) others() (a, b, c int) {
	a = m.someone()
	b = (a + 1 + m.rng.IntN(m.processes-1)) % m.processes
	return a, b, m.someone()
}

// wait advances the time.
func (m *sharedMaker) wait(d time.Duration) {
	m.now += d
	m.add("clock %v", d)
}

// gapScene adds a commit whose rows become visible one by one, with queries during the commit and after it.
func (m *sharedMaker) gapScene() {
	writer, reader, third := m.others()
	m.add("order %d", 1+m.rng.IntN(6))
	m.add("at w%d p%d query ann", 2+m.rng.IntN(3), reader+1)
	if m.oneIn(2) {
		d := time.Duration(m.rng.IntN(29)) * time.Second
		m.now += d
		m.add("at w%d clock %v", 2+m.rng.IntN(3), d)
	}
	if m.oneIn(3) {
		m.add("fault %s stage %d", []string{"fail", "withhold"}[m.rng.IntN(2)], 1+m.rng.IntN(2))
	}
	m.add("p%d %s", writer+1, m.write())
	m.wait(time.Duration(m.rng.IntN(100)) * time.Second)
	if m.oneIn(2) {
		m.add("p%d late", writer+1)
		m.add("p%d %s", writer+1, m.write())
	}
	m.add("p%d query ann", reader+1)
	m.add("p%d query ann", third+1)
}

// leanScene adds a stream whose first blobs are sealed by another process, possibly long before its last blob.
func (m *sharedMaker) leanScene() {
	writer, sealer, reader := m.others()
	at := m.now - maxSkew - m.slot - time.Duration(m.rng.IntN(3))*time.Hour
	series := m.series()
	for i := range 2 + m.rng.IntN(2) {
		m.add("p%d write ann %s@%v=%d", writer+1, series, at+time.Duration(i)*time.Millisecond, i)
		m.add("p%d sealall", sealer+1)
		if m.oneIn(2) {
			m.add("p%d forget", []int{reader, sealer}[m.rng.IntN(2)]+1)
		}
		if m.oneIn(2) {
			m.wait([]time.Duration{time.Minute, 13 * time.Hour, 75 * time.Hour}[m.rng.IntN(3)])
			m.add("p%d round", sealer+1)
		}
	}
	m.add("p%d write ann %s@%v=9", writer+1, series, at+time.Second)
	m.add("p%d %s", reader+1, []string{"restart", "query ann", "query bob"}[m.rng.IntN(3)])
	m.add("p%d query ann", reader+1)
}

// edgeScene makes the clocks of two processes differ by nearly a day. Shortly before a slot with samples reaches the
// given age by one of the clocks, edgeScene calls the function then.
func (m *sharedMaker) edgeScene(age time.Duration, then func(writer, other, reader int, at time.Duration)) {
	writer, other, reader := m.others()
	m.setSkew(writer, -maxSkew)
	m.setSkew(other, maxSkew)
	clock := m.base.Add(m.now - maxSkew - time.Minute)
	end := clock.Truncate(m.slot)
	at := end.Add(-time.Duration(1+m.rng.IntN(3000)) * time.Second).Sub(m.base)
	m.add("p%d write ann up/a@%v=1", writer+1, at)
	if m.oneIn(2) {
		m.add("p%d sealall", other+1)
	}
	p := other
	if age == 24*time.Hour {
		p = writer
	}
	before := time.Duration(1+m.rng.IntN(20)) * time.Second
	m.wait(end.Add(age-before).Sub(m.base) - m.now - m.skews[p])
	then(writer, other, reader, at)
	m.add("p%d restart", reader+1)
	m.add("p%d query ann", reader+1)
}

// sealOverEdge adds a seal during which another process writes to the slot, before the slot reaches the age.
func (m *sharedMaker) sealOverEdge(writer, other, _ int, at time.Duration) {
	n := 1 + m.rng.IntN(6)
	m.add("at w%d p%d write ann up/a@%v=2", n, writer+1, at+time.Millisecond)
	m.now += 30 * time.Second
	m.add("at w%d clock 30s", n+1)
	m.add("p%d sealall", other+1)
}

// writeOverEdge adds a write during which the slot reaches the age, while another process runs a round of the sealing
// loop.
func (m *sharedMaker) writeOverEdge(writer, other, _ int, at time.Duration) {
	m.add("order %d", 1+m.rng.IntN(6))
	m.now += 29 * time.Second
	m.add("at w1 clock 29s")
	m.add("at w2 p%d round", other+1)
	m.add("p%d write ann up/a@%v=2", writer+1, at+time.Millisecond)
	m.add("p%d %s", writer+1, fmt.Sprintf("write ann up/a@%v=3", at+2*time.Millisecond))
}
