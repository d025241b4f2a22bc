package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

const (
	protocolPartitions = 2
	protocolSettle     = 15 * time.Minute
)

// protocolRun runs a history on a Store and on the plain model.
type protocolRun struct {
	base   time.Time
	disk   protocolDisk
	opts   Options
	model  *protocolModel
	probes bool         // the engine can probe multiple partitions at once
	now    atomic.Int64 // milliseconds
	newest atomic.Int64 // the highest value of now
	unsure map[string]bool

	// The next fields describe one of multiple processes: its name in the staging log without the number of the start,
	// its number of starts, the time of its last heartbeat, and whether it sends no heartbeats.
	name   string
	starts int
	beaten int64
	silent bool

	eng   *stepEngine
	store *Store
	ready chan struct{} // closed when store is set

	faults []protocolFault
	within []protocolWithin
	hooks  map[protocolCall]func()
	with   []string
	opened map[string]*openQuery

	mu      sync.Mutex
	problem string
}

// openQuery is a query that was selected and whose samples weren't read yet.
type openQuery struct {
	query    query.Query
	tenant   string
	selected []*query.SelectedSeries
	needs    map[protocolSeries]map[int64]protocolValue
	went     map[protocolFact]int
	deletes  int // number of deletes that were started before the query
	asked    visible
	cancel   context.CancelFunc
}

// runHistory runs a history, and returns a description of the first problem, or "".
func runHistory(h history) string {
	if run := historyKinds[strings.Fields(h[0])[0]]; run != nil {
		return run(h)
	}
	if strings.Contains(h[0], "processes=") {
		return runShared(h)
	}
	r, err := newProtocolRun(h[0])
	if err != nil {
		return err.Error()
	}
	if r.start(); r.problem == "" {
		for i, line := range h[1:] {
			if err := r.line(line); err != nil {
				r.fail("line %q: %v", line, err)
			}
			if r.problem != "" {
				r.stop()
				return fmt.Sprintf("line %d: %s: %s", i+2, line, r.problem)
			}
		}
		r.quiet()
	}
	r.stop()
	if r.problem != "" {
		return "at the end: " + r.problem
	}
	return ""
}

func newProtocolRun(head string) (*protocolRun, error) {
	r := &protocolRun{
		opts: DefaultOptions(), model: newProtocolModel(), unsure: map[string]bool{}, opened: map[string]*openQuery{},
	}
	words := strings.Fields(head)
	if len(words) == 0 || words[0] != "store" {
		return nil, errors.New("a history begins with its store")
	}
	r.opts.Partitions = protocolPartitions
	for _, word := range words[1:] {
		name, text, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "base":
			r.base, err = time.Parse(time.RFC3339, text)
		case "retention":
			r.opts.Retention, err = time.ParseDuration(text)
		case "slot":
			r.opts.Slot, err = time.ParseDuration(text)
		case "engine":
			r.disk, err = newProtocolDisk(text)
		case "probes":
			r.probes, err = strconv.ParseBool(text)
		default:
			err = fmt.Errorf("no setting %q", name)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.disk == nil {
		return nil, errors.New("the store names no engine")
	}
	r.pass(time.Duration(r.base.UnixMilli()) * time.Millisecond)
	r.opts.seams.still, r.opts.seams.trustsClocks = true, true
	r.opts.Now = func() time.Time { return time.UnixMilli(r.now.Load()) }
	return r, nil
}

func (r *protocolRun) pass(d time.Duration) {
	now := r.now.Add(d.Milliseconds())
	r.newest.Store(max(r.newest.Load(), now))
}

func (r *protocolRun) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == "" {
		r.problem = fmt.Sprintf(format, args...)
	}
}

// tolerate fails the history if err isn't nil and no injected fault explains it.
func (r *protocolRun) tolerate(what string, err error) {
	if err != nil && !r.eng.faulty() && !errors.Is(err, ErrNotReady) {
		r.fail("%s: %v", what, err)
	}
}

// start opens the engine and the store. After an injected fault it tries again.
func (r *protocolRun) start() {
	for range 3 {
		inner, err := r.disk.open()
		if err != nil {
			r.fail("opening the engine: %v", err)
			return
		}
		r.eng = newStepEngine(inner, r.unsure)
		r.eng.shared = r.opts.Shared
		r.eng.opening.Store(r.opts.Shared)
		r.starts++
		if r.opts.Shared {
			r.opts.seams.writer, r.beaten = fmt.Sprintf(
				"%s%*d", r.name, engine.IDLen-len(r.name), r.starts,
			), r.now.Load()
		}
		r.ready = make(chan struct{})
		r.eng.arm(r.faults, r.hooks)
		r.store, err = Open(context.WithValue(context.Background(), openingKey{}, true), r.stepping(), r.opts)
		close(r.ready)
		if err == nil {
			err = r.store.WaitReady(context.Background())
			if dead := r.eng.isDead(); err == nil && !dead {
				return
			}
		}
		if !r.eng.disarm() {
			r.fail("starting: %v", err)
			return
		}
		r.faults, r.hooks = nil, nil
		r.stop()
	}
	r.fail("three starts were in vain")
}

// stepping returns the engine that the store is opened with.
func (r *protocolRun) stepping() engine.Engine {
	if r.probes {
		return probingSteps{r.eng}
	}
	return r.eng
}

// stop closes the store and ends the process. If its engine was killed before, closing has no effect on the data.
func (r *protocolRun) stop() {
	for name, q := range r.opened {
		q.cancel()
		delete(r.opened, name)
	}
	if r.store != nil {
		if err := r.store.Close(); err != nil {
			r.fail("closing the store: %v", err)
		}
		r.store = nil
	}
	if r.eng != nil {
		if err := r.eng.Close(); err != nil {
			r.fail("closing the engine: %v", err)
		}
	}
}

// line executes one line of a history.
func (r *protocolRun) line(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "fault":
		f, err := parseFault(rest)
		r.faults = append(r.faults, f)
		return err
	case "at":
		n, op, _ := strings.Cut(rest, " ")
		n, write := strings.CutPrefix(n, "w")
		call, err := strconv.Atoi(n)
		r.within = append(r.within, protocolWithin{protocolCall{write, call}, op})
		return err
	case "with":
		r.with = append(r.with, rest)
		return nil
	}
	r.hook(kind)
	switch kind {
	case "crash", "restart": // A new engine is armed when it starts.
	case "backup": // File operations of a backup are counted instead of calls of the engine.
		r.eng.arm(r.faults, nil)
	default:
		r.eng.arm(r.faults, r.hooks)
	}
	err := r.operation(line)
	r.eng.disarm()
	r.faults, r.hooks = nil, nil
	if r.eng.isDead() && err == nil && r.problem == "" {
		r.restart(true, 0)
	}
	return err
}

// protocolWithin is an operation that runs at a call of another operation.
type protocolWithin struct {
	call protocolCall
	op   string
}

// mayHappenWithin lists, for each operation, the operations that may run within it, because they don't wait for it. A
// seal needs the locks that a commit and another seal hold, and a query may wait for another query that fills the
// cache.
var mayHappenWithin = map[string][]string{
	"write": {"query", "clock", "jump"}, "bulk": {"query", "clock", "jump"},
	"seal":    {"write", "bulk", "query", "letgo", "forget", "clock"},
	"round":   {"write", "bulk", "query", "letgo", "forget", "clock"},
	"sealall": {"write", "bulk", "query", "letgo", "forget", "clock"},
	"unlist":  {"write", "bulk", "query", "letgo", "clock"},
	"query":   {"write", "bulk", "seal", "round", "sealall", "letgo", "clock"},
	"open":    {"write", "bulk", "seal", "round", "sealall", "letgo", "clock"},
	"backup":  {"write", "bulk", "query", "seal", "round", "sealall", "unlist", "expire", "clean", "workoff", "compact", "letgo", "clock", "late"},
	"crash":   {"write", "bulk", "query", "letgo", "clock"}, "restart": {"write", "bulk", "query", "letgo", "clock"},
}

// hook prepares the operations that will run within the next operation of a kind.
func (r *protocolRun) hook(kind string) {
	r.hooks = map[protocolCall]func(){}
	for _, w := range r.within {
		nested, _, _ := strings.Cut(w.op, " ")
		if !slices.Contains(mayHappenWithin[kind], nested) {
			continue
		}
		r.hooks[w.call] = func() {
			<-r.ready
			if r.store == nil {
				return
			}
			if err := r.operation(w.op); err != nil {
				r.fail("%s: %v", w.op, err)
			}
		}
	}
	r.within = nil
}

// restart restarts the process, after a power cut or a clean stop.
func (r *protocolRun) restart(cut bool, percent int) {
	if cut {
		r.eng.kill()
		r.disk.powerCut(percent)
	}
	r.stop()
	r.start()
}

func (r *protocolRun) operation(line string) error {
	words := strings.Fields(line)
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	ctx := context.Background()
	switch words[0] {
	case "write", "bulk":
		return r.writes(line)
	case "query":
		return r.query(words[1:])
	case "open":
		return r.openQuery(arg(1), words[2:])
	case "read":
		if q := r.opened[arg(1)]; q != nil {
			r.readQuery(q)
			delete(r.opened, arg(1))
		}
	case "seal":
		return r.sealOne(arg(1), arg(2))
	case "round":
		r.round(ctx)
	case "sealall":
		r.tolerate("sealing all", r.store.SealAll(ctx))
	case "unlist":
		p, err := strconv.Atoi(arg(1))
		r.tolerate("moving marks", r.store.UnlistSlots(ctx, p%protocolPartitions))
		return err
	case "letgo":
		r.store.ReleaseSeries()
	case "expire":
		_, err := r.store.Expire(ctx)
		r.tolerate("deleting windows", err)
	case "clock":
		d, err := time.ParseDuration(arg(1))
		r.pass(d)
		return err
	case "jump":
		d, err := time.ParseDuration(arg(1))
		r.pass(d)
		for p := range protocolPartitions {
			r.tolerate("moving marks", r.store.UnlistSlots(ctx, p))
		}
		return err
	case "crash":
		percent, _ := strconv.Atoi(arg(1))
		r.restart(true, percent)
	case "restart":
		r.restart(false, 0)
	case "backup":
		return r.backup(ctx)
	case "delete":
		return r.delete(ctx, words[1:])
	case "clean":
		r.tolerate("cleaning", r.store.CleanTombstones(ctx, arg(1)))
	case "workoff":
		r.tolerate("recomputing rollups", r.store.WorkOffDeletes(ctx, arg(1)))
	case "compact":
		r.compact(ctx)
	case "count":
		r.count(ctx)
	case "late":
		r.tolerate("applying what was withheld", r.eng.inner.ApplyWithheld(ctx))
	default:
		return fmt.Errorf("no operation %q", words[0])
	}
	return nil
}

// query executes a query, and compares its answer with the model.
func (r *protocolRun) query(words []string) error {
	if err := r.openQuery("now", words); err != nil {
		return err
	}
	if q := r.opened["now"]; q != nil {
		delete(r.opened, "now")
		r.readQuery(q)
		r.queryExemplars(q.query)
	}
	return nil
}

func (r *protocolRun) openQuery(name string, words []string) error {
	q := query.Query{
		Tenant: words[0], MinT: -format.MaxTime, MaxT: format.MaxTime, Sorted: true,
		Warn: func(err error) { r.fail("a warning: %v", err) },
	}
	match, metric := labels.MatchRegexp, ".+"
	if len(words) > 1 {
		match, metric = labels.MatchEqual, words[1]
	}
	q.Matchers = []*labels.Matcher{labels.MustNewMatcher(match, labels.MetricName, metric)}
	if len(words) > 3 {
		for i, at := range []*int64{&q.MinT, &q.MaxT} {
			d, err := time.ParseDuration(words[2+i])
			if err != nil {
				return err
			}
			*at = r.base.Add(d).UnixMilli()
		}
	}
	open := &openQuery{
		query: q, tenant: q.Tenant, needs: r.model.needs(q.Tenant), went: r.model.went(), deletes: r.model.begun(),
	}
	if match == labels.MatchEqual {
		maps.DeleteFunc(open.needs, func(s protocolSeries, _ map[int64]protocolValue) bool {
			return !strings.HasPrefix(s.series, metric+"/")
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	open.cancel = cancel
	before := r.now.Load()
	selected, err := r.store.Select(ctx, q)
	after := r.now.Load()
	if err != nil {
		cancel()
		r.tolerate("selecting", err)
		return nil
	}
	open.selected, open.asked = selected, r.visible(q, before, after)
	r.opened[name] = open
	return nil
}

func (r *protocolRun) readQuery(q *openQuery) {
	defer q.cancel()
	got := map[protocolSeries][]protocolSample{}
	for _, s := range q.selected {
		var samples chunk.Samples
		if err := s.Samples(&samples); err != nil {
			r.tolerate("reading samples", err)
			return
		}
		name := protocolSeries{q.tenant, s.Labels.Get(labels.MetricName) + "/" + s.Labels.Get("host")}
		list, problem := flatten(&samples)
		if problem != "" {
			r.fail("%v: %s", name, problem)
		}
		if got[name] != nil {
			r.fail("%v comes twice", name)
		}
		got[name] = list
	}
	asked := q.asked
	asked.minT = max(asked.minT, r.mayBeGone())
	if q.deletes != r.model.begun() { // The answer may reflect a delete that was started after the query.
		q.needs = nil
	}
	if problem := r.model.judge(q.went, q.needs, got, asked); problem != "" {
		r.fail("%s", problem)
	}
}
