package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/membership"
)

// sharedRun runs a history of multiple processes on one engine. Each process has its own clock and faults, and can be
// killed.
type sharedRun struct {
	procs []*protocolRun
	now   atomic.Int64 // milliseconds; the clocks of processes differ from it
	disk  *sharedDisk

	order  uint64
	faults []protocolFault
	within []protocolWithin
	with   []string
}

// sharedDisk is an engine for all processes. Rows of the tables that describe processes expire.
type sharedDisk struct {
	inner engine.Engine
	run   *sharedRun

	mu      sync.Mutex
	expires map[string]int64 // seconds since 1970 by the engine's clock
}

// sharedEngine is the engine of one process on a sharedDisk.
type sharedEngine struct {
	unclosed
	disk  *sharedDisk
	ahead func() int64 // how fast the process' clock is compared with the engine's, seconds
}

func (d *sharedDisk) of(r *protocolRun) protocolDisk {
	return &memoryDisk{
		inner: &sharedEngine{unclosed{d.inner}, d, func() int64 { return (r.now.Load() - d.run.now.Load()) / 1000 }},
	}
}

func expiringRow(t *engine.Table, partition, clustering engine.Key) string {
	return fmt.Sprint(t.ID, partition, clustering)
}

func mayExpire(t *engine.Table) bool { return t == engine.Tails || t == engine.Processes }

func (e *sharedEngine) Write(ctx context.Context, batches []engine.Batch) error {
	e.disk.mu.Lock()
	for _, b := range batches {
		for _, m := range b.Mutations {
			if mayExpire(b.Table) {
				row := expiringRow(b.Table, b.Partition, m.Clustering)
				e.disk.expires[row] = max(e.disk.expires[row], b.Expires-e.ahead())
			}
		}
	}
	e.disk.mu.Unlock()
	return e.unclosed.Write(ctx, batches)
}

func (e *sharedEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if !mayExpire(r.Table) {
		return e.unclosed.Scan(ctx, r)
	}
	limit := r.Limit
	r.Limit = 0
	return func(yield func(engine.Row, error) bool) {
		n := 0
		for row, err := range e.unclosed.Scan(ctx, r) {
			e.disk.mu.Lock()
			gone := err == nil &&
				e.disk.expires[expiringRow(r.Table, r.Partition, row.Clustering)] <= e.disk.run.now.Load()/1000
			e.disk.mu.Unlock()
			if gone {
				continue
			}
			if n++; !yield(row, err) || n == limit {
				return
			}
		}
	}
}

// runShared runs a history, and returns a description of the first problem, or "".
func runShared(h history) string {
	s, err := newSharedRun(h[0])
	if err != nil {
		return err.Error()
	}
	problem := s.problemIn(h)
	for _, r := range s.procs {
		r.stop()
		if problem == "" && r.problem != "" {
			problem = fmt.Sprintf("stopping %s: %s", r.name, r.problem)
		}
	}
	return problem
}

func (s *sharedRun) problemIn(h history) string {
	for _, r := range s.procs {
		if r.start(); r.problem != "" {
			return r.problem
		}
	}
	for i, line := range h[1:] {
		if err := s.line(line); err != nil {
			return fmt.Sprintf("line %d: %s: %v", i+2, line, err)
		}
		if problem := s.problem(); problem != "" {
			return fmt.Sprintf("line %d: %s: %s", i+2, line, problem)
		}
	}
	s.quiet()
	if problem := s.problem(); problem != "" {
		return "at the end: " + problem
	}
	return ""
}

func (s *sharedRun) problem() string {
	for _, r := range s.procs {
		if r.problem != "" {
			return r.name + ": " + r.problem
		}
	}
	return ""
}

func newSharedRun(head string) (*sharedRun, error) {
	s := &sharedRun{}
	n, blob := 2, 0
	var words []string
	for _, word := range strings.Fields(head) {
		var err error
		if text, ok := strings.CutPrefix(word, "processes="); ok {
			n, err = strconv.Atoi(text)
		} else if text, ok := strings.CutPrefix(word, "blob="); ok {
			blob, err = strconv.Atoi(text)
		} else {
			words = append(words, word)
		}
		if err != nil {
			return nil, err
		}
	}
	s.disk = &sharedDisk{inner: memory.New(), run: s, expires: map[string]int64{}}
	for i := range n {
		r, err := newProtocolRun(strings.Join(append(words, "engine=memory"), " "))
		if err != nil {
			return nil, err
		}
		r.name = fmt.Sprintf("p%d", i+1)
		r.disk = s.disk.of(r)
		r.opts.Shared, r.opts.seams = true, seams{still: true, trustsClocks: true, blobBytes: blob}
		s.procs = append(s.procs, r)
		r.model, r.unsure = s.procs[0].model, s.procs[0].unsure
	}
	s.procs[0].model.forgetful = true
	s.now.Store(s.procs[0].now.Load())
	return s, nil
}

// pass advances the time and all clocks.
func (s *sharedRun) pass(d time.Duration) {
	s.now.Add(d.Milliseconds())
	for _, r := range s.procs {
		r.pass(d)
	}
	s.agree()
}

// agree sets newest of every process to the latest time that any process' clock has shown.
func (s *sharedRun) agree() {
	newest := s.now.Load()
	for _, r := range s.procs {
		newest = max(newest, r.newest.Load())
	}
	for _, r := range s.procs {
		r.newest.Store(newest)
	}
}

// line executes one line of a history.
func (s *sharedRun) line(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "fault":
		f, err := parseFault(rest)
		s.faults = append(s.faults, f)
		return err
	case "at":
		n, op, _ := strings.Cut(rest, " ")
		n, write := strings.CutPrefix(n, "w")
		call, err := strconv.Atoi(n)
		s.within = append(s.within, protocolWithin{protocolCall{write, call}, op})
		return err
	case "with":
		s.with = append(s.with, rest)
		return nil
	case "order":
		n, err := strconv.Atoi(rest)
		s.order = uint64(n)
		return err
	case "clock":
		d, err := time.ParseDuration(rest)
		s.pass(d)
		return err
	}
	r, err := s.process(kind)
	if err != nil {
		return err
	}
	err = s.operation(r, rest)
	s.faults, s.within, s.with, s.order = nil, nil, nil, 0
	return err
}

func (s *sharedRun) process(name string) (*protocolRun, error) {
	for _, r := range s.procs {
		if r.name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("no process %q", name)
}

// operation executes an operation of a process, with faults, and with operations of other processes within it.
func (s *sharedRun) operation(r *protocolRun, op string) error {
	kind, _, _ := strings.Cut(op, " ")
	s.beat(r, kind)
	if r.store == nil || kind == "crash" || kind == "restart" {
		r.faults, r.hooks = s.faults, s.hooks(r, kind) // A new engine is armed when it starts.
	} else {
		r.eng.arm(s.faults, s.hooks(r, kind))
		r.eng.order = s.order
	}
	if r.silent {
		r.eng.excuse()
	}
	r.with = s.with
	err := s.do(r, op)
	r.faults, r.hooks, r.with = nil, nil, nil
	if r.store == nil {
		return err
	}
	r.eng.disarm()
	if r.eng.isDead() && err == nil && r.problem == "" {
		r.restart(true, 0)
	}
	return err
}

// hooks returns the operations that will run within the next operation of a process, by call.
func (s *sharedRun) hooks(r *protocolRun, kind string) map[protocolCall]func() {
	hooks := map[protocolCall]func(){}
	for _, w := range s.within {
		who, nested, _ := strings.Cut(w.op, " ")
		if who == "clock" {
			hooks[w.call] = func() {
				d, err := time.ParseDuration(nested)
				if s.pass(d); err != nil {
					r.fail("%s: %v", w.op, err)
				}
				r.eng.excuse()
			}
			continue
		}
		other, err := s.process(who)
		verb, _, _ := strings.Cut(nested, " ")
		if err != nil || verb == "skew" || other == r && !slices.Contains(mayHappenWithin[kind], verb) {
			continue
		}
		hooks[w.call] = func() {
			if other == r {
				if r.eng.opening.Load() { // The operation would wait for itself.
					return
				}
				if <-r.ready; r.store == nil {
					return
				}
				if r.waitsFor(kind, verb) {
					return
				}
			}
			if err := s.nested(r, other, nested); err != nil {
				r.fail("%s: %v", w.op, err)
			}
		}
	}
	return hooks
}

// waitsFor reports whether an operation within a call of the same process would wait for a lock that the calling commit
// or seal holds. In a test it would wait forever, because both run in one goroutine.
func (r *protocolRun) waitsFor(kind, verb string) bool {
	s := r.store
	sealing := held(&s.deletes.cleaning, &s.deletes.taking, &s.deletes.learning)
	for i := range s.sealMu {
		sealing = sealing || held(&s.sealMu[i])
	}
	switch verb {
	case "seal", "round", "sealall":
		return sealing
	case "query":
		// Once a day a query releases sealed samples. Before it does, it waits until no commit and no seal is running.
		if (s.follower.isReleaseDue(0) || s.follower.isReleaseDue(1)) && (sealing || held(&s.commitMu)) {
			return true
		}
		return r.model.begun() > 0 && (kind != "query" || sealing) // The query may have to seal because of a delete.
	}
	return false
}

type tryLocker interface {
	sync.Locker
	TryLock() bool
}

// held reports whether one of locks is locked.
func held(locks ...tryLocker) bool {
	return slices.ContainsFunc(locks, func(mu tryLocker) bool {
		if !mu.TryLock() {
			return true
		}
		mu.Unlock()
		return false
	})
}

func (s *sharedRun) nested(r, other *protocolRun, op string) error {
	kind, _, _ := strings.Cut(op, " ")
	s.beat(other, kind)
	if other == r {
		return s.do(r, op)
	}
	if other.store != nil {
		other.eng.arm(nil, nil)
		defer other.eng.disarm()
	}
	if other.silent {
		other.eng.excuse()
	}
	return s.do(other, op)
}

// beat does the background work that a process does every other second.
func (s *sharedRun) beat(r *protocolRun, kind string) {
	if r.silent || r.store == nil || kind != "write" && kind != "bulk" ||
		r.now.Load()-r.beaten < membership.HeartbeatInterval.Milliseconds() {
		return
	}
	s.beatNow(r)
}

func (s *sharedRun) beatNow(r *protocolRun) {
	begun := r.now.Load() // Time may pass within the heartbeat.
	if err := r.store.member.SendHeartbeat(context.Background()); err != nil {
		r.tolerate("beating", err)
		return
	}
	r.beaten = begun
}

// do executes an operation of a process.
func (s *sharedRun) do(r *protocolRun, op string) error {
	ctx := context.Background()
	verb, rest, _ := strings.Cut(op, " ")
	if r.store == nil {
		if verb == "up" {
			r.start()
		}
		return nil
	}
	switch verb {
	case "up":
	case "down":
		r.eng.kill()
		r.stop()
	case "silent":
		r.silent = true
	case "heard":
		r.silent = false
	case "beat":
		if !r.silent {
			s.beatNow(r)
		}
	case "forget":
		for p := range protocolPartitions {
			r.tolerate("forgetting", r.store.ReleaseSealed(ctx, p))
		}
		r.store.ReleaseSeries()
	case "clean":
		for _, other := range s.procs { // Every running process does this once per round.
			if other.store == nil {
				continue
			}
			if other.eng.busy() {
				return nil // The operation would wait for itself.
			}
			other.tolerate("forgetting", s.forget(other))
		}
		return r.operation(op)
	case "skew":
		d, err := time.ParseDuration(rest)
		s.skew(r, d)
		return err
	case "clock", "jump":
		return errors.New("time passes for all")
	default:
		return r.operation(op)
	}
	return nil
}

func (s *sharedRun) forget(r *protocolRun) (err error) {
	for p := range protocolPartitions {
		err = errors.Join(err, r.store.ReleaseSealed(context.Background(), p))
	}
	return err
}

// skew sets how fast a process' clock is. In production a process measures durations with another clock, which isn't
// changed. In this test there is only one clock, so the process sends a heartbeat and follows the others directly
// before and after the change.
func (s *sharedRun) skew(r *protocolRun, ahead time.Duration) {
	r.silent = false
	around := func() {
		s.beatNow(r)
		if err := r.store.catchUp(context.Background()); err != nil {
			r.tolerate("following", err)
		}
	}
	around()
	r.now.Store(s.now.Load())
	r.pass(ahead)
	s.agree()
	around()
}
