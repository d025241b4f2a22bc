package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// classesRun runs a history of classes.
type classesRun struct {
	*Store
	base     time.Time
	passed   atomicDuration
	opts     Options
	disk     protocolDisk
	expiring *memory.Engine
	eng      *classesEngine
	faults   waysFaults
	model    *classesModel
	in       [classesSeries]int // the classes of the series, as configured
	days     map[int64]string   // the ids of class lists, by window of raw rows
	value    float64
	problem  string
}

// classesEngine injects faults, and blocks all calls once its process was stopped. If the store is shared, its rows
// expire.
type classesEngine struct {
	*faultengine.Engine
	r    *classesRun
	dead bool
}

func (e *classesEngine) rule(op faultengine.Op) faultengine.Action {
	if e.dead {
		return faultengine.Fail(errDead)
	}
	return e.r.faults.act(op)
}

// expiringClasses is a classesEngine that implements engine.Clock.
type expiringClasses struct{ *classesEngine }

func (e expiringClasses) Clock(context.Context) (time.Time, error) { return e.r.now(), nil }
func (e expiringClasses) ExpiresRows() bool                        { return true }

func (r *classesRun) now() time.Time { return r.base.Add(r.passed.get()) }

func (r *classesRun) fail(format string, args ...any) {
	if r.problem == "" {
		r.problem = fmt.Sprintf(format, args...)
	}
}

func runClasses(h history) string {
	r, err := newClassesRun(h[0])
	if err != nil {
		return err.Error()
	}
	r.start()
	defer r.stop()
	if r.expiring != nil {
		r.passed.set(r.passed.get() + time.Hour)
		r.beat()
	}
	for i, line := range h[1:] {
		if r.line(strings.Fields(line)); r.problem == "" {
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

func newClassesRun(first string) (*classesRun, error) {
	r := &classesRun{opts: DefaultOptions(), days: map[int64]string{}}
	var kind, base, keeps string
	_, err := fmt.Sscanf(first, "classes base=%s engine=%s keep=%s", &base, &kind, &keeps)
	if err != nil {
		return nil, err
	}
	if r.base, err = time.Parse(time.RFC3339, base); err != nil {
		return nil, err
	}
	r.base = r.base.Add(classesLead)
	var all []retention.Durations
	for text := range strings.SplitSeq(keeps, "/") {
		var k [resolutions]time.Duration
		for i, d := range strings.Split(text, ",") {
			if k[i], err = time.ParseDuration(d); err != nil {
				return nil, err
			}
		}
		all = append(all, retention.Durations{Raw: k[0], FiveMinutes: k[1], OneHour: k[2]})
	}
	r.model = newClassesModel(all)
	o := &r.opts
	o.Retention, o.Retention5m, o.Retention1h = all[0].Raw, all[0].FiveMinutes, all[0].OneHour
	o.Partitions, o.AddClasses, o.seams.still = 2, true, true
	o.Now, o.Elapsed = r.now, r.passed.get
	if kind == "expiring" {
		o.Shared = true
		r.expiring = memory.NewExpiring(r.now)
	} else if r.disk, err = newProtocolDisk(kind); err != nil {
		return nil, err
	}
	return r, nil
}

// listOf returns the classes with the matchers of the series that are in them. in contains the class of each series.
func (r *classesRun) listOf(in [classesSeries]int) (list []retention.Class) {
	for i, k := range r.model.keep[1:] {
		c := retention.Class{Name: fmt.Sprint("class", i+1), Durations: k}
		for s, class := range in {
			if class == i+1 {
				c.Match = append(
					c.Match, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "host", fmt.Sprint(s))},
				)
			}
		}
		if c.Match == nil {
			c.Match = append(c.Match, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "host", "none")})
		}
		list = append(list, c)
	}
	return list
}

func (r *classesRun) start() {
	r.opts.Classes = r.listOf(r.in)
	var inner engine.Engine = unclosed{r.expiring}
	if r.disk != nil {
		var err error
		if inner, err = r.disk.open(); err != nil {
			r.fail("opening the engine: %v", err)
			return
		}
	}
	r.eng = &classesEngine{r: r}
	r.eng.Engine = faultengine.Wrap(inner, r.eng.rule)
	var eng engine.Engine = r.eng
	if r.expiring != nil {
		eng = expiringClasses{r.eng}
	}
	ctx := context.Background()
	s, err := Open(ctx, eng, r.opts)
	if err == nil {
		err = s.WaitReady(ctx)
	}
	if err != nil {
		r.fail("opening the store: %v", err)
		return
	}
	r.Store = s
	r.beat()
}

// stop stops the process cleanly. cut stops it by a power cut.
func (r *classesRun) stop() { r.end(false, 0) }

func (r *classesRun) end(cut bool, percent int) {
	if r.Store == nil {
		return
	}
	r.late()
	if err := r.clock.StoreUptime(context.Background()); err != nil {
		r.fail("noting the time: %v", err)
	}
	if cut {
		if r.eng.dead = true; r.disk != nil {
			r.disk.powerCut(percent)
		}
	}
	if err := r.Close(); err != nil {
		r.fail("closing the store: %v", err)
	}
	if err := r.eng.Close(); err != nil {
		r.fail("closing the engine: %v", err)
	}
	r.Store = nil
}

func (r *classesRun) beat() {
	if r.Store != nil && r.opts.Shared {
		if err := r.member.SendHeartbeat(context.Background()); err != nil {
			r.fail("beating: %v", err)
		}
	}
}

// late applies the withheld writes.
func (r *classesRun) late() {
	if err := r.eng.ApplyWithheld(context.Background()); err != nil {
		r.fail("applying what was withheld: %v", err)
	}
}

// line executes one line of a history.
func (r *classesRun) line(words []string) {
	if words[0] == "fault" {
		f, err := parseFault(strings.Join(words[1:], " "))
		if err != nil {
			r.fail("%v", err)
		}
		r.faults.set(&f, 0)
		return
	}
	r.late()
	r.step(words)
	r.faults.set(nil, 0)
}

func (r *classesRun) step(words []string) {
	ctx := context.Background()
	switch words[0] {
	case "write":
		r.write(words)
	case "import":
		r.imports(r.Store, words[1:])
	case "other":
		r.other(words)
	case "seal":
		r.seal()
	case "delete":
		r.delete(words)
	case "clean":
		r.tolerate("cleaning", r.CleanTombstones(ctx, "t"))
	case "workoff":
		r.tolerate("processing deletes", r.WorkOffDeletes(ctx, "t"))
	case "in":
		series, class := int(number(words, 1)), int(number(words, 2))%len(r.model.keep)
		r.end(false, 0)
		r.in[series] = class
		r.model.inClass(series, class)
		r.start()
	case "restart":
		r.end(false, 0)
		r.start()
	case "crash":
		r.end(true, int(number(words, 1)))
		r.start()
	case "pass":
		r.pass(length(words, 1))
	default:
		r.fail("no operation %q", words[0])
	}
}

// tolerate reports whether err is nil. It fails the history if err isn't nil although no fault was injected.
func (r *classesRun) tolerate(what string, err error) bool {
	if err != nil && !r.faults.drawn() && !errors.Is(err, errDeleting) {
		r.fail("%s: %v", what, err)
	}
	return err == nil
}

// classOn returns the class of a series on the day of t. It checks that a day keeps its list of classes.
func (r *classesRun) classOn(series int, t int64) int64 {
	window := r.period.RawWindowAt(t)
	list, fixed, err := r.retention.ClassesOn(context.Background(), "t", window)
	if err != nil {
		r.fail("reading the classes of a day: %v", err)
		return 0
	}
	if was, ok := r.days[window]; ok && (was != list.ID() || !fixed) {
		r.fail(
			"the day that ends %s has the classes %q, and had %q", showTime(r.period.WindowEnd(window)), list.ID(), was,
		)
	}
	if fixed {
		r.days[window] = list.ID()
	}
	return list.ClassOfLabels(waysLabels(int64(series)))
}

func (r *classesRun) classOf(series int) func(t int64) int64 {
	return func(t int64) int64 { return r.classOn(series, t) }
}

func (r *classesRun) seal() {
	if r.tolerate("sealing", r.SealAll(context.Background())) {
		r.model.seal(r.classOn)
	}
}

func (r *classesRun) pass(d time.Duration) {
	r.seal()
	for ; d > 0 && r.problem == ""; d -= day {
		r.passed.set(r.passed.get() + min(d, day))
		r.beat()
		_, err := r.Expire(context.Background())
		r.tolerate("expiring", err)
		if r.opts.Shared {
			r.passed.set(r.passed.get() + 31*time.Second)
			r.beat()
		}
	}
}

// samples returns the series and times of a line, and a value that is higher than all previous values.
func (r *classesRun) samples(words []string) (series int, times []int64, v float64) {
	first := r.now().Add(-length(words, 2)).Truncate(classesStep)
	for i := range number(words, 3) {
		if t := first.Add(time.Duration(i) * classesStep); !t.After(r.now()) {
			times = append(times, t.UnixMilli())
		}
	}
	r.value++
	return int(number(words, 1)), times, r.value
}

func (r *classesRun) write(words []string) {
	series, times, v := r.samples(words)
	b := r.NewBatch("t")
	s, err := b.Define(nil, waysLabels(int64(series)))
	for i := 0; i < len(times) && err == nil; i++ {
		err = b.Float(s, times[i], 0, v)
	}
	if errors.Is(err, ErrTooOld) {
		b.Release()
		return
	}
	if err == nil {
		err = b.Commit(context.Background())
	}
	ok := r.tolerate("writing", err)
	r.model.put(series, times, v, r.classOf(series), r.now().UnixMilli(), ok, false)
}

// other imports samples with another process, which has its own class file and an inaccurate clock.
func (r *classesRun) other(words []string) {
	opts, off := r.opts, length(words, 3)
	in := [classesSeries]int{int(number(words, 1)) % len(r.model.keep), int(number(words, 2)) % len(r.model.keep)}
	opts.Classes, opts.Now = r.listOf(in), func() time.Time { return r.now().Add(off) }
	s, err := Open(context.Background(), expiringClasses{r.eng}, opts)
	if err == nil {
		err = s.WaitReady(context.Background())
	}
	if err == nil {
		err = s.member.SendHeartbeat(context.Background())
	}
	if err != nil {
		r.fail("opening another process: %v", err)
		return
	}
	if s.clock.MayRemove() == nil { // Its clock isn't too far off.
		r.imports(s, words[4:])
	}
	if err := s.Close(); err != nil {
		r.fail("closing another process: %v", err)
	}
	r.beat()
	for series, class := range in {
		r.model.inClass(series, class)
	}
}

// imports imports samples with the process s.
func (r *classesRun) imports(s *Store, words []string) {
	series, times, v := r.samples(append([]string{""}, words...))
	var samples chunk.Samples
	for _, t := range times {
		samples.AppendFloat(t, 0, v)
	}
	again := samples
	stats, err := s.Import(context.Background(), "t", []ImportedSeries{{waysLabels(int64(series)), &samples}})
	// A failed import must be repeated. Until then slots are answered from samples, and samples of other classes may be
	// missing.
	if err != nil && r.faults.drawn() {
		r.late()
		r.faults.set(nil, 0)
		stats, err = s.Import(context.Background(), "t", []ImportedSeries{{waysLabels(int64(series)), &again}})
	}
	// The classes of this process may come into force on a later day, when the import must be repeated.
	refused := err != nil && strings.Contains(err.Error(), "repeat the import then")
	ok := !refused && r.tolerate("importing", err)
	r.model.put(
		series, times, v, r.classOf(series), r.now().UnixMilli(), ok && stats.Expired+stats.Ahead+stats.Refused == 0,
		stats.RollupsOnly > 0,
	)
}

func (r *classesRun) delete(words []string) {
	series := int(number(words, 1))
	hour := func(i int) int64 {
		return format.FloorDiv(r.now().Add(-length(words, i)).UnixMilli(), format.HourMS) * format.HourMS
	}
	start, end := hour(2)+1, hour(3)
	err := r.Delete(
		context.Background(), "t", start, end,
		append(ofMetric(), labels.MustNewMatcher(labels.MatchEqual, "host", words[1]))...,
	)
	r.model.delete(series, start, end, r.tolerate("deleting", err))
}

// quiet advances the time, cleans all deletes, and restarts the store, all without faults. The answers can then be
// checked exactly.
func (r *classesRun) quiet() {
	r.pass(3 * day)
	r.step([]string{"clean"})
	r.look()
	r.step([]string{"restart"})
	r.look()
	if r.problem == "" {
		if _, err := r.Check(context.Background(), func(problem string) { r.fail("check: %s", problem) }); err != nil {
			r.fail("checking: %v", err)
		}
	}
}

// look compares all answers with the model.
func (r *classesRun) look() {
	if r.problem != "" || r.Store == nil {
		return
	}
	now := r.now().UnixMilli()
	all := query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: ofMetric(), Columns: rollup.AllColumns,
		Warn: func(err error) { r.fail("a warning: %v", err) },
	}
	var raw [classesSeries]map[int64]float64
	for s, found := range r.ask(all) {
		var samples chunk.Samples
		if err := found.Samples(&samples); err != nil {
			r.fail("reading samples: %v", err)
		}
		raw[s] = map[int64]float64{}
		for i, t := range samples.T {
			raw[s][t] = samples.V[i]
		}
	}
	r.judge("raw", r.model.judgeRaw(now, raw))
	for _, res := range rollup.Resolutions {
		q := all
		q.Resolution = res
		r.judge("", r.model.judgeBuckets(now, res, r.buckets(q), true))
	}
	horizons, err := r.BoundariesOf(context.Background(), all)
	if err != nil {
		r.fail("asking for horizons: %v", err)
	}
	for _, q := range query.OlderQueries(all, horizons, rollup.AllColumns) {
		r.judge(
			fmt.Sprintf("where samples are gone from classes %b", q.Classes),
			r.model.judgeBuckets(now, q.Resolution, r.buckets(q), false),
		)
	}
}

func (r *classesRun) judge(of, problem string) {
	if problem != "" {
		r.fail("%s: %s", of, problem)
	}
}

// ask returns the series that a query finds, by number.
func (r *classesRun) ask(q query.Query) map[int]*query.SelectedSeries {
	list, err := r.Select(context.Background(), q)
	if err != nil {
		r.fail("selecting: %v", err)
	}
	found := map[int]*query.SelectedSeries{}
	for _, s := range list {
		n, _ := strconv.Atoi(s.Labels.Get("host"))
		found[n] = s
	}
	return found
}

func (r *classesRun) buckets(q query.Query) map[classesBucket]int {
	counts := map[classesBucket]int{}
	for n, s := range r.ask(q) {
		var b rollup.Buckets
		if err := s.Buckets(&b, &query.BucketBuffers{}); err != nil {
			r.fail("reading buckets: %v", err)
		}
		for i, end := range b.End {
			counts[classesBucket{n, end}] += int(b.Count[i])
		}
	}
	return counts
}
