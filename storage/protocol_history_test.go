package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A history is text with one operation per line. Times are relative to the base in the first line.
//
//	store base=2026-05-01T12:00:00Z retention=720h slot=2h engine=memory probes=false
//	                                              probes: the engine can probe multiple partitions at once
//
//	write TENANT SERIES@TIME=VALUE[/START] …      one request; VALUE is a number, stale, nan:BITS,
//	                                              h0 … h5, or the exemplar eN
//	bulk TENANT SERIES TIME STEP N VALUE          one request of N samples, values rising by 1
//	with write …                                  waits, and is sent together with the next write
//	query TENANT [METRIC [MIN MAX]]               compared with the model
//	open NAME TENANT / read NAME                  a query that starts now, and reads its samples later
//	seal PARTITION NTH                            seals the nth waiting slot of a partition
//	round                                         a round of the sealing loop: seals settled slots, unlists, expires
//	sealall / unlist PARTITION / letgo / expire
//	delete TENANT METRIC[/HOST] FROM TO           deletes samples that were sent before
//	workoff TENANT / clean TENANT                 recomputes rollups; cleans tombstones
//	compact                                       compacts rollups; answers must not change
//	count                                         counts the series of ended windows; the counts must be right
//	clock DURATION                                sets the clock forward or back
//	jump DURATION                                 sets the clock forward, and unlists empty slots of all partitions
//	crash [PERCENT] / restart                     a power cut that keeps this share of unsynced writes; a clean stop
//	late                                          withheld writes are applied now
//	backup                                        a checkpoint of Pebble's engine, which is opened as a separate store
//
// These lines change the next operation that isn't one of them:
//
//	fault fail|lose|withhold TABLE N              the write of its nth batch to a table gets a fault
//	fault scan TABLE N                            its nth scan of a table fails
//	fault die before|after N                      the process stops at its nth write
//	at N OPERATION                                runs within its nth call of the engine, or of a backup before its nth file
//	at wN OPERATION                               runs just before its nth write
type history []string

func (h history) String() string { return strings.Join(h, "\n") + "\n" }

// historyKinds contains the functions that run histories of other kinds, by the first word of the history.
var historyKinds = map[string]func(history) string{"ways": runWays, "pages": runPages, "classes": runClasses}

func parseHistory(text string) (h history) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			h = append(h, line)
		}
	}
	return h
}

// protocolNames contains the series of histories, as metric/host.
var protocolNames = []string{"up/a", "up/b", "up/c", "load/a", "load/b", "heat/a"}

// historyMaker makes a random history.
type historyMaker struct {
	rng   *rand.Rand
	base  time.Time
	now   time.Duration // from base
	slot  time.Duration
	used  []time.Duration
	opens int
	// deletes is true if the history contains deletes.
	deletes bool
	// backups is true if the history contains backups.
	backups bool
	out     history
}

func makeHistory(seed uint64, engine string) history {
	m := &historyMaker{rng: rand.New(rand.NewPCG(seed, 1))}
	base := "2026-05-01T12:00:00Z"
	retention := 30 * 24 * time.Hour
	switch m.rng.IntN(8) {
	case 0: // times at and before 0
		base, retention = "1970-01-02T01:00:00Z", 0
	case 1:
		retention = 5 * 24 * time.Hour
	}
	m.slot = []time.Duration{2 * time.Hour, 2 * time.Hour, time.Hour, 12 * time.Hour}[m.rng.IntN(4)]
	m.deletes, m.backups = seed%2 == 1, engine == "pebble"
	m.base, _ = time.Parse(time.RFC3339, base)
	m.out = append(m.out, fmt.Sprintf("store base=%s retention=%s slot=%s engine=%s probes=%t",
		base, retention, m.slot, engine, m.oneIn(2)))
	for n := 25 + m.rng.IntN(40); n > 0; n-- {
		m.step()
	}
	return m.out
}

func (m *historyMaker) add(format string, args ...any) {
	m.out = append(m.out, fmt.Sprintf(format, args...))
}

func (m *historyMaker) oneIn(n int) bool { return m.rng.IntN(n) == 0 }

func (m *historyMaker) step() {
	op := m.operation()
	if m.backups && m.oneIn(8) {
		op = "backup"
	}
	if m.deletes && m.oneIn(8) {
		op = m.remove()
	}
	kind, _, _ := strings.Cut(op, " ")
	if m.oneIn(4) && kind != "clock" && kind != "read" && kind != "late" && kind != "letgo" {
		m.add("fault %s", m.fault(kind))
	}
	if nested := m.nested(kind); nested != "" && m.oneIn(2) {
		m.add("at %s %s", m.call(kind), nested)
		if m.oneIn(2) && kind != "query" && kind != "open" { // A query that fills the cache would wait for itself.
			m.add("at %s query %s", m.call(kind), m.tenant())
		}
	}
	m.add("%s", op)
	if m.oneIn(3) {
		m.add("query %s", m.tenant())
	}
}

// call returns a random call of an operation, at which another operation will run.
func (m *historyMaker) call(kind string) string {
	if kind == "backup" {
		return fmt.Sprint(1 + m.rng.IntN(10))
	}
	if kind == "query" || kind == "open" || kind == "crash" || kind == "restart" || m.oneIn(4) {
		return fmt.Sprint(1 + m.rng.IntN(14))
	}
	return fmt.Sprintf("w%d", 1+m.rng.IntN(8))
}

func (m *historyMaker) operation() string {
	switch m.rng.IntN(24) {
	case 0, 1, 2, 3, 4, 5, 6:
		for m.oneIn(4) {
			m.add("with %s", m.write())
		}
		return m.write()
	case 7:
		return fmt.Sprintf(
			"bulk %s %s %v %v %d %d", m.tenant(), m.series(), m.time(), time.Duration(1+m.rng.IntN(30))*time.Second,
			100+m.rng.IntN(200), m.rng.IntN(3),
		)
	case 8, 9, 10:
		return m.round()
	case 11:
		return "sealall"
	case 12, 13:
		return fmt.Sprintf("seal %d %d", m.rng.IntN(protocolPartitions), m.rng.IntN(4))
	case 14:
		return "letgo"
	case 15, 16, 17:
		return m.clock()
	case 18:
		return fmt.Sprintf("crash %d", []int{0, 50, 100}[m.rng.IntN(3)])
	case 19:
		return "restart"
	case 20:
		return "late"
	case 21:
		m.opens++
		return fmt.Sprintf("open q%d %s", m.opens, m.tenant())
	case 22:
		if m.opens > 0 {
			return fmt.Sprintf("read q%d", 1+m.rng.IntN(m.opens))
		}
	}
	return m.query()
}

// round returns a round of the sealing loop. It also draws a random number, so that the histories of existing seeds
// don't change.
func (m *historyMaker) round() string {
	m.oneIn(4)
	return "round"
}

func (m *historyMaker) query() string {
	switch m.rng.IntN(4) {
	case 0:
		return fmt.Sprintf("query %s %s", m.tenant(), []string{"up", "load", "heat"}[m.rng.IntN(3)])
	case 1:
		a, b := m.time(), m.time()
		return fmt.Sprintf("query %s up %v %v", m.tenant(), min(a, b), max(a, b))
	default:
		return "query " + m.tenant()
	}
}

func (m *historyMaker) clock() string {
	d := time.Duration(m.rng.IntN(180)) * time.Minute
	switch m.rng.IntN(6) {
	case 0:
		d = -time.Duration(m.rng.IntN(40)) * time.Minute
	case 1:
		d = time.Duration(m.rng.IntN(72)) * time.Hour
	case 2:
		if m.oneIn(2) {
			d = time.Duration(m.rng.IntN(20)) * 24 * time.Hour
		}
	}
	m.now += d
	return fmt.Sprintf("clock %v", d)
}

// fault returns a random fault for an operation.
func (m *historyMaker) fault(kind string) string {
	n := 1 + m.rng.IntN(3)
	if m.oneIn(4) {
		return fmt.Sprintf("die %s %d", []string{"before", "after"}[m.rng.IntN(2)], 1+m.rng.IntN(6))
	}
	if kind == "query" || kind == "open" || m.oneIn(5) {
		return fmt.Sprintf(
			"scan %s %d",
			[]string{"stage", "sealed", "raw", "catalog", "staged", "staged", "windows", "delete"}[m.rng.IntN(8)],
			1+m.rng.IntN(8),
		)
	}
	tables := []string{"stage", "raw", "catalog", "sealed", "staged", "staged", "windows"}
	switch kind {
	case "write", "bulk":
		tables = []string{"stage", "stage", "staged"}
	case "delete", "clean", "workoff":
		tables = append(tables, "delete", "r5m", "r1h")
	}
	return fmt.Sprintf(
		"%s %s %d", []string{"fail", "lose", "withhold"}[m.rng.IntN(3)], tables[m.rng.IntN(len(tables))], n,
	)
}

// nested returns a random operation that may run within another operation. A seal can't, because it needs the locks
// that a commit or another seal holds.
func (m *historyMaker) nested(kind string) string {
	var options []string
	switch kind {
	case "write", "bulk":
		options = []string{m.query(), "jump 26h", "jump 50h", "jump 74h", "clock 5m"}
	case "seal", "round", "sealall", "unlist":
		options = []string{m.write(), m.write(), m.query(), "letgo", "clock 1h"}
	case "query", "open":
		options = []string{
			"sealall", m.round(), m.write(), "letgo", fmt.Sprintf("seal %d 0", m.rng.IntN(protocolPartitions)),
		}
	case "crash", "restart":
		options = []string{m.write(), m.write(), m.query(), "letgo"}
	case "backup":
		options = []string{
			"sealall", "sealall", m.round(), m.write(), "late", "compact", "expire", "clean " + m.tenant(),
			"workoff " + m.tenant(),
		}
	default:
		return ""
	}
	nested := options[m.rng.IntN(len(options))]
	if text, ok := strings.CutPrefix(nested, "jump "); ok && m.oneIn(2) {
		d, _ := time.ParseDuration(text)
		m.now += d
	} else if ok {
		return ""
	}
	return nested
}

func (m *historyMaker) tenant() string { return []string{"ann", "bob"}[m.rng.IntN(2)] }

func (m *historyMaker) series() string { return protocolNames[m.rng.IntN(len(protocolNames))] }

func (m *historyMaker) write() string {
	words := []string{"write", m.tenant()}
	for n := 1 + m.rng.IntN(6); n > 0; n-- {
		words = append(words, fmt.Sprintf("%s@%v=%s", m.series(), m.time(), m.value()))
	}
	return strings.Join(words, " ")
}

func (m *historyMaker) value() string {
	v := ""
	switch m.rng.IntN(14) {
	case 12, 13:
		return fmt.Sprintf("e%d", m.rng.IntN(3))
	case 0:
		v = []string{"stale", "nan:7ff8000000000001", "nan:7ff8000000000042", "+Inf", "-Inf", "-0", "0"}[m.rng.IntN(7)]
	case 1, 2:
		v = fmt.Sprintf("h%d", m.rng.IntN(len(protocolHistograms)))
	default:
		v = fmt.Sprint(m.rng.IntN(4))
	}
	if m.oneIn(6) {
		v += fmt.Sprintf("/%d", []int64{1, -5, 1_700_000_000_000}[m.rng.IntN(3)])
	}
	return v
}

// time returns a random time for a sample, relative to the base.
func (m *historyMaker) time() (at time.Duration) {
	defer func() {
		if !slices.Contains(m.used, at) {
			m.used = append(m.used, at)
		}
	}()
	ago := func(limit time.Duration) time.Duration {
		return m.now - time.Duration(m.rng.Int64N(int64(limit/time.Millisecond)))*time.Millisecond
	}
	switch m.rng.IntN(12) {
	case 0, 1, 2:
		if len(m.used) > 0 {
			return m.used[m.rng.IntN(len(m.used))]
		}
	case 3: // a slot's boundary
		clock := m.base.Add(m.now)
		end := clock.Truncate(m.slot).Add(-time.Duration(m.rng.IntN(30)) * m.slot)
		return end.Sub(m.base) + []time.Duration{0, 0, time.Millisecond, -time.Millisecond}[m.rng.IntN(4)]
	case 4:
		return m.now + time.Duration(m.rng.IntN(600))*time.Second
	case 5:
		return ago(6 * time.Hour)
	case 6:
		return ago(3 * 24 * time.Hour)
	case 7:
		return ago(21 * 24 * time.Hour)
	case 8:
		return ago(30 * time.Hour)
	}
	return m.now - time.Duration(m.rng.IntN(40))*15*time.Second
}
