package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// waysRun runs a history of the removal paths.
type waysRun struct {
	base     time.Time
	kind     string
	passed   atomicDuration
	model    *waysModel
	disk     protocolDisk   // the engine of a single process
	expiring *memory.Engine // the engine of multiple processes, in memory
	// open opens the engine of a process, if the caller of runWaysOver has specified one. Its rows don't expire,
	// because its clock isn't the history's.
	open func() (engine.Engine, error)
	// slow is true if each call of the engine takes a millisecond or more. The time then advances in fewer, longer
	// steps. Nothing is swept, because rows reappear only in the memory engine.
	slow bool
	// probes is true if the engine can probe multiple partitions at once.
	probes  bool
	procs   []*waysProcess
	values  float64
	longest int64   // the longest retention of any process, milliseconds
	raised  []int64 // the previous shorter retentions, until a process has recorded the longer one
	copied  []engine.Batch
	// unfinished contains the imports to repeat.
	unfinished []waysImport
	problem    string
}

// waysProcess is a process with its own clock and retentions.
type waysProcess struct {
	*Store
	r     *waysRun
	eng   *waysEngine
	opts  Options
	off   atomicDuration
	since time.Duration // when off was set
	// trusted contains errors of the process' clock at times when it may have been trusted. The clock may be trusted
	// again with the same error.
	trusted []time.Duration
	faults  waysFaults
}

// waysEngine is the engine of one process. It injects faults, and blocks all calls once the process has stopped.
type waysEngine struct {
	*faultengine.Engine
	p    *waysProcess
	dead atomic.Bool
}

// clockedWays is a waysEngine that implements engine.Clock, like an engine on another machine.
type clockedWays struct{ *waysEngine }

func (e clockedWays) Clock(context.Context) (time.Time, error) { return e.p.r.now(), nil }
func (e clockedWays) ExpiresRows() bool                        { return true }

func (e *waysEngine) rule(op faultengine.Op) faultengine.Action {
	if e.dead.Load() {
		return faultengine.Fail(errDead)
	}
	return e.p.faults.act(op)
}

// Write implements engine.Engine. On Pebble, writes must be applied in the order in which they were requested, even if
// their callers were canceled. Other engines order them by timestamps.
func (e *waysEngine) Write(ctx context.Context, batches []engine.Batch) error {
	if e.p.r.kind == "pebble" && !e.dead.Load() {
		if err := e.ApplyWithheld(ctx); err != nil {
			return err
		}
	}
	return e.Engine.Write(ctx, batches)
}

func (r *waysRun) now() time.Time { return r.base.Add(r.passed.get()) }

func (r *waysRun) fail(format string, args ...any) {
	if r.problem == "" {
		r.problem = fmt.Sprintf(format, args...)
	}
}

// runWays runs a history, and returns a description of the first problem, or "".
func runWays(h history) string { return runWaysOver(h, nil) }

// runWaysOver is like runWays. If open isn't nil, the processes share the engine that it opens.
func runWaysOver(h history, open waysOpener) string {
	r, err := newWaysRun(h[0], open)
	if err != nil {
		return err.Error()
	}
	defer r.stop()
	for s := range waysSeries { // The samples make Expire record retention boundaries.
		r.line(fmt.Sprintf("p1 write %d 90m 20", s))
	}
	r.line("p1 seal")
	r.line("p1 expire")
	for i, line := range h[1:] {
		if r.line(line); r.problem == "" {
			r.look()
		}
		if r.problem != "" {
			return fmt.Sprintf("line %d: %s: %s", i+2, line, r.problem)
		}
	}
	if r.quiet(); r.problem != "" {
		return "at the end: " + r.problem
	}
	return ""
}

// waysOpener opens an engine with the given clock.
type waysOpener func(now func() time.Time) (engine.Engine, error)

func newWaysRun(head string, open waysOpener) (*waysRun, error) {
	r := &waysRun{}
	processes := 1
	o := DefaultOptions()
	for _, word := range strings.Fields(head)[1:] {
		name, text, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "base":
			r.base, err = time.Parse(time.RFC3339, text)
		case "engine":
			r.kind = text
		case "probes":
			r.probes, err = strconv.ParseBool(text)
		case "processes":
			processes, err = strconv.Atoi(text)
		case "raw":
			o.Retention, err = time.ParseDuration(text)
		case "5m":
			o.Retention5m, err = time.ParseDuration(text)
		case "1h":
			o.Retention1h, err = time.ParseDuration(text)
		default:
			err = fmt.Errorf("no setting %q", name)
		}
		if err != nil {
			return nil, err
		}
	}
	o.Partitions, o.seams.still = protocolPartitions, true
	r.model = newWaysModel(r.kind == "expiring")
	switch o.Shared = r.kind == "expiring"; {
	case open != nil:
		r.slow = true
		r.open = func() (engine.Engine, error) { return open(r.now) }
	case o.Shared:
		r.expiring = memory.NewExpiring(r.now)
		r.open = func() (engine.Engine, error) { return unclosed{r.expiring}, nil }
	default:
		var err error
		if r.disk, err = newProtocolDisk(r.kind); err != nil {
			return nil, err
		}
		r.open = func() (engine.Engine, error) { return r.disk.open() }
	}
	for range processes {
		p := &waysProcess{r: r, opts: o}
		p.opts.Now = func() time.Time { return r.now().Add(p.off.get()) }
		p.opts.Elapsed = func() time.Duration { return r.passed.get() }
		r.procs = append(r.procs, p)
		p.start()
	}
	return r, nil
}

func (p *waysProcess) start() {
	inner, err := p.r.open()
	if err != nil {
		p.r.fail("opening the engine: %v", err)
		return
	}
	p.eng = &waysEngine{p: p}
	p.eng.Engine = faultengine.Wrap(inner, p.eng.rule)
	var eng engine.Engine = p.eng
	if p.opts.Shared {
		eng = clockedWays{p.eng}
		if p.r.probes {
			eng = probingWays{clockedWays{p.eng}}
		}
	}
	p.r.model.keeps(p.opts.Retention)
	ctx := context.Background()
	s, err := Open(ctx, eng, p.opts)
	if err == nil {
		err = s.WaitReady(ctx)
	}
	if err != nil {
		p.r.fail("opening the store: %v", err)
		return
	}
	p.Store = s
	p.r.hear() // Otherwise it takes half a minute until the processes have read each other's state.
	p.r.raise()
}

// end stops a process, by a power cut if cut is true.
func (p *waysProcess) end(cut bool, percent int) {
	if p.Store == nil {
		return
	}
	if cut {
		if p.eng.dead.Store(true); p.r.disk != nil {
			p.r.disk.powerCut(percent)
		}
	} else if err := p.clock.StoreUptime(context.Background()); err != nil {
		p.r.fail("noting the time: %v", err)
	}
	if err := p.Close(); err != nil {
		p.r.fail("closing the store: %v", err)
	}
	if err := p.eng.Close(); err != nil {
		p.r.fail("closing the engine: %v", err)
	}
	p.Store = nil
}

func (r *waysRun) stop() {
	for _, p := range r.procs {
		p.end(false, 0)
	}
}

// mustDoubt reports whether the process' clock must be untrusted, because it is wrong by days and hasn't run for long
// enough.
func (p *waysProcess) mustDoubt() bool {
	if p.off.get() == 0 {
		return false
	}
	if p.opts.Shared {
		return true
	}
	return p.r.passed.get()-p.since < 55*time.Minute &&
		!slices.ContainsFunc(
			p.trusted, func(t time.Duration) bool { return (p.off.get() - t).Abs() <= membership.MaxLeap },
		)
}

// removed checks the error of an operation that removes rows. With an untrusted clock, the operation must fail with
// ErrClock. Other errors are allowed only if faulty is true. removed reports whether the operation succeeded.
func (p *waysProcess) removed(what string, err error, faulty bool) bool {
	switch {
	case err == nil && p.mustDoubt():
		p.r.fail("%s by a clock that is off by %v", what, p.off.get())
	case err != nil && !faulty && !errors.Is(err, membership.ErrClock):
		p.r.fail("%s: %v", what, err)
	case errors.Is(err, membership.ErrClock) && p.off.get() == 0 && p.opts.Shared:
		p.r.fail("%s: %v", what, err)
	}
	return err == nil
}

// bound returns the time until which a process may hide rows, by its clock and retentions.
func (p *waysProcess) bound(res rollup.Resolution) int64 {
	h := &p.r.model.horizons[res]
	kept := p.opts.configuredRetention().All.Duration(res)
	if kept == 0 {
		return h.least()
	}
	window := [...]int64{format.DayMS, format.Window5mMS, format.Window1hMS}[res]
	// Windows outside of the retention may be hidden immediately, regardless of the previous retention.
	outside := p.r.now().Add(-kept).UnixMilli()
	return max(
		h.least(), min(p.opts.Now().Add(-kept).UnixMilli(), h.least()+window),
		min(outside, p.opts.Now().Add(-kept).UnixMilli()),
	)
}

// expire calls Expire, and records it in the model.
func (p *waysProcess) expire(faulty bool) {
	_, err := p.Expire(context.Background())
	if ok := p.removed("expiring", err, faulty); ok || !errors.Is(err, membership.ErrClock) {
		for res := range p.r.model.horizons {
			hidden := int64(never)
			if kept := p.opts.configuredRetention().All.Duration(rollup.Resolution(res)); kept != 0 {
				hidden = p.opts.Now().Add(-kept).UnixMilli()
			}
			p.r.model.horizons[res].expired(p.r.passed.get().Milliseconds(), hidden, ok)
		}
	}
	if p.opts.Shared {
		p.r.pass((30 * time.Second) + time.Second)
	}
}

// pass advances the time, and lets the processes send heartbeats.
func (r *waysRun) pass(d time.Duration) {
	r.passed.set(r.passed.get() + d)
	r.hear()
}

// hear makes each process read the advertised states of the others. It does this twice, because a process may change
// its own state in response.
func (r *waysRun) hear() {
	for range 2 {
		for _, p := range r.procs {
			if p.Store != nil && p.opts.Shared {
				if err := p.member.SendHeartbeat(context.Background()); err != nil {
					r.fail("beating: %v", err)
				}
			}
		}
	}
}

// round executes a round of a server's loop.
func (p *waysProcess) round(faulty bool) {
	ctx := context.Background()
	for partition := range protocolPartitions {
		work, err := p.waiting(ctx, partition)
		if err != nil && !faulty {
			p.r.fail("listing work: %v", err)
		}
		p.sealPasses(work, func(works []Work) {
			if _, err := p.SealTogether(ctx, works); err != nil && !faulty && !errors.Is(err, membership.ErrClock) {
				p.r.fail("sealing: %v", err)
			}
		})
		if err := p.UnlistSlots(ctx, partition); err != nil && !faulty && !errors.Is(err, membership.ErrClock) {
			p.r.fail("moving marks: %v", err)
		}
		if p.r.slow {
			continue
		}
		if _, err := p.SealUnlisted(ctx, partition); err != nil && !faulty && !errors.Is(err, membership.ErrClock) {
			p.r.fail("sweeping: %v", err)
		}
	}
	p.rollUp(faulty)
	p.ReleaseSeries()
	p.expire(faulty)
	if err := p.clock.StoreUptime(ctx); err != nil && !faulty {
		p.r.fail("noting the time: %v", err)
	}
}

// rollUp computes the missing rollups of windows, as a server does at the end of a day.
func (p *waysProcess) rollUp(faulty bool) {
	ctx := context.Background()
	windows, err := listed(p.Unrolled(ctx, -format.MaxTime, format.MaxTime, func() {}))
	for i := 0; i < len(windows) && err == nil; i++ {
		_, err = p.RollUp(ctx, windows[i], func() {})
	}
	if err != nil && !faulty && !errors.Is(err, membership.ErrClock) {
		p.r.fail("making rollups: %v", err)
	}
}

// quiet removes the faults and corrects the clocks, so that the final answers can be checked.
func (r *waysRun) quiet() {
	for _, p := range r.procs {
		p.faults.set(nil, 0)
		p.off.set(0)
	}
	for d := range r.strides(6*day, day) {
		r.repeatImports()
		r.pass(d)
		for _, p := range r.procs {
			if r.problem != "" {
				return
			}
			p.round(false)
		}
		r.look()
	}
	cleaned := true // Otherwise the rows of a failed cleaning may differ until it is repeated.
	for _, p := range r.procs {
		if r.problem != "" {
			return
		}
		err := p.CleanTombstones(context.Background(), "t")
		if err != nil && !errors.Is(err, membership.ErrClock) {
			r.fail("cleaning: %v", err)
		}
		cleaned = cleaned && err == nil
		r.look()
		p.end(true, 50)
		p.start()
	}
	r.look()
	if r.problem == "" && cleaned {
		if _, err := r.procs[0].Check(
			context.Background(), func(problem string) { r.fail("check: %s", problem) },
		); err != nil {
			r.fail("checking: %v", err)
		}
	}
}

// look compares the answers of every process with the model.
func (r *waysRun) look() {
	r.noted()
	for i, p := range r.procs {
		if r.problem != "" || p.Store == nil {
			continue
		}
		a, ok := p.answer()
		if problem := ""; ok && r.problem == "" {
			if problem = r.model.judge(a); problem != "" {
				r.fail("process %d: %s", i+1, problem)
			}
		}
	}
}

// answer reads all samples and buckets. ok is false if a read fails.
func (p *waysProcess) answer() (a *waysAnswer, ok bool) {
	a = &waysAnswer{raw: map[int64]map[int64]float64{}, buckets: map[waysBucket]int{}, now: p.r.now().UnixMilli()}
	ctx := context.Background()
	a.told, a.until = p.told, format.MaxTime
	switch {
	case p.opts.Shared: // Answers end at the time by the cluster's clock.
		a.until = p.r.now().Add(MaxAhead).UnixMilli()
	case p.off.get() < 0:
		a.until = p.opts.Now().Add(MaxAhead).UnixMilli()
	}
	for res := range rollup.Resolution(resolutions) {
		a.bound[res] = p.bound(res)
		for _, span := range p.besideGaps() {
			found, err := p.Select(ctx, query.Query{
				Tenant: "t", MinT: span.MinT, MaxT: span.MaxT, Matchers: ofMetric(), Resolution: res,
				Columns: rollup.AllColumns, Warn: func(err error) {
					if !strings.Contains(err.Error(), "missing from the result until they are sealed") {
						p.r.fail("a warning: %v", err)
					}
					a.late = true
				},
			})
			if err != nil {
				p.r.fail("selecting: %v", err)
				return a, false
			}
			for _, s := range found {
				series, _ := strconv.ParseInt(s.Labels.Get("host"), 10, 64)
				p.read(a, res, series, s)
			}
		}
	}
	return a, true
}

func (p *waysProcess) read(a *waysAnswer, res rollup.Resolution, series int64, s *query.SelectedSeries) {
	if res == rollup.Raw {
		var samples chunk.Samples
		if err := s.Samples(&samples); err != nil {
			p.r.fail("reading samples: %v", err)
		}
		if a.raw[series] == nil {
			a.raw[series] = map[int64]float64{}
		}
		for i, t := range samples.T {
			a.raw[series][t] = samples.V[i]
		}
		return
	}
	var b rollup.Buckets
	if err := s.Buckets(&b, &query.BucketBuffers{}); err != nil {
		p.r.fail("reading buckets: %v", err)
	}
	for i, end := range b.End {
		a.buckets[waysBucket{series, end, res}] += int(b.Count[i])
	}
}

func waysLabels(series int64) labels.Labels {
	return labels.FromStrings(labels.MetricName, "m", "host", fmt.Sprint(series))
}
