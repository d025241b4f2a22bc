package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// pagesRun runs a history of pages.
type pagesRun struct {
	*Store
	base        time.Time
	passed, off atomicDuration
	disk        protocolDisk
	eng         *cuttingEngine
	opts        Options
	model       *pagesModel
	value       float64
	// wrong is true once the clock was wrong. It may then still be untrusted when it is right again.
	wrong bool
	// classesOf contains the classes that the series of each group have been in.
	classesOf map[byte]map[int64]bool
	cut       int // the step of the engine at which the next background query is canceled

	mu      sync.Mutex
	problem string
}

func runPages(h history) string {
	r, problem := newPagesRun(h[0])
	if problem != "" {
		return problem
	}
	r.start()
	defer r.stop()
	for i, line := range h[1:] {
		if r.bounds(); r.problem == "" {
			r.line(strings.Fields(line))
		}
		if r.bounds(); r.problem == "" {
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

// newPagesRun returns a run for the first line of a history, or a problem with that line.
func newPagesRun(first string) (r *pagesRun, problem string) {
	r = &pagesRun{opts: DefaultOptions(), model: newPagesModel(), classesOf: map[byte]map[int64]bool{}}
	var kind, base string
	if _, err := fmt.Sscanf(first, "pages base=%s engine=%s", &base, &kind); err != nil {
		return nil, err.Error()
	}
	var err error
	if r.base, err = time.Parse(time.RFC3339, base); err != nil {
		return nil, err.Error()
	}
	if r.disk, err = newProtocolDisk(kind); err != nil {
		return nil, err.Error()
	}
	r.opts.Partitions, r.opts.AddClasses, r.opts.seams.still = 2, true, true
	r.opts.Now = func() time.Time { return r.base.Add(r.passed.get() + r.off.get()) }
	r.opts.Elapsed = r.passed.get
	return r, ""
}

func (r *pagesRun) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == "" {
		r.problem = fmt.Sprintf(format, args...)
	}
}

// tolerate reports whether err is nil. It fails the history if err isn't nil and wasn't caused by an untrusted clock.
func (r *pagesRun) tolerate(what string, err error) (ok bool) {
	if err != nil && (!r.wrong || !errors.Is(err, membership.ErrClock)) {
		r.fail("%s: %v", what, err)
	}
	return err == nil
}

func (r *pagesRun) start() {
	inner, err := r.disk.open()
	if err == nil {
		r.eng = &cuttingEngine{Engine: inner}
		r.Store, err = Open(context.Background(), r.eng, r.opts)
	}
	if err == nil {
		err = r.WaitReady(context.Background())
	}
	if err != nil {
		r.fail("opening: %v", err)
		return
	}
	list, err := r.retention.List(context.Background(), r.retention.ListInForce(r.opts.Now().UnixMilli()))
	if err != nil {
		r.fail("reading the classes: %v", err)
		return
	}
	for group, series := range pagesGroups() {
		if r.classesOf[group] == nil {
			r.classesOf[group] = map[int64]bool{}
		}
		r.classesOf[group][list.ClassOfLabels(series[0])] = true
	}
}

func (r *pagesRun) stop() {
	if r.Store == nil {
		return
	}
	for what, err := range map[string]error{
		"noting the time": r.clock.StoreUptime(context.Background()), "closing": r.Close(),
		"closing the engine": r.eng.Close(),
	} {
		if err != nil {
			r.fail("%s: %v", what, err)
		}
	}
	r.Store = nil
}

// line executes a line of the history.
func (r *pagesRun) line(words []string) {
	ctx := context.Background()
	switch words[0] {
	case "write":
		r.acked(r.write(r.samples(words[1:])))
	case "import":
		r.acked(r.imports(r.samples(words[1:])))
	case "beside":
		r.beside(r.samples(words[1:4]), r.samples(words[4:]))
	case "seal":
		r.seal()
	case "delete":
		start, end := hour(r.base.Add(length(words, 2)).UnixMilli())+1, hour(r.base.Add(length(words, 3)).UnixMilli())
		if r.tolerate(
			"deleting", r.Delete(ctx, "t", start, end, labels.MustNewMatcher(labels.MatchEqual, "group", words[1])),
		) {
			r.model.delete(words[1], start, end)
		}
	case "clean":
		r.tolerate("cleaning", r.CleanTombstones(ctx, "t"))
	case "workoff":
		r.tolerate("recomputing rollups", r.WorkOffDeletes(ctx, "t"))
	case "expire":
		r.expire()
	case "pass":
		for left := length(words, 1); left > 0 && r.problem == ""; left -= 12 * time.Hour {
			r.passed.set(r.passed.get() + min(left, 12*time.Hour))
			r.expire()
		}
	case "skew":
		r.wrong = true
		r.off.set(length(words, 1))
	case "restart":
		r.stop()
		r.configure(words[1:])
		r.start()
	case "compact":
		r.compact()
	case "cutcompact":
		r.cutCompact(int(number(words, 1)))
	case "amidcompact":
		r.compactAmid(words[1:])
	case "again":
		r.stop()
		r.start()
	case "besidecompact":
		r.compactBeside(r.samples(words[1:]))
	default:
		r.fail("no operation %q", words[0])
	}
}

// configure sets the options of the next start.
func (r *pagesRun) configure(words []string) {
	r.opts.seams.pageSeries = int(number(words, 0))
	r.opts.Retention, r.opts.Retention5m, r.opts.Retention1h = length(words, 2), length(words, 3), length(words, 4)
	r.opts.Classes = nil
	if words[1] == "none" {
		return
	}
	x, y, _ := strings.Cut(words[1], "/")
	for i, groups := range []string{x, y} {
		if groups == "" {
			continue
		}
		r.opts.Classes = append(r.opts.Classes, retention.Class{
			Name:  []string{"x", "y"}[i],
			Match: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, "group", "["+groups+"]")}},
			Durations: []retention.Durations{
				{Raw: 12 * day, FiveMinutes: 30 * day, OneHour: 0}, {Raw: 60 * day, FiveMinutes: 0, OneHour: 0},
			}[i],
		})
	}
}

// sentSamples are the samples of a line, with their facts.
type sentSamples struct {
	series []labels.Labels
	times  []int64
	v      float64
	facts  []*pagesFact
}

func (r *pagesRun) samples(words []string) *sentSamples {
	r.value++
	s := &sentSamples{series: seriesOfGroups(words[0]), v: r.value}
	first := r.base.Add(length(words, 1))
	for i := range number(words, 2) {
		s.times = append(s.times, first.Add(time.Duration(i)*time.Minute).UnixMilli())
	}
	for _, ls := range s.series {
		s.facts = append(s.facts, r.model.put(ls.String(), s.times, s.v)...)
	}
	return s
}

// acked records that facts were acknowledged, and whether they are sealed.
func (r *pagesRun) acked(facts []*pagesFact, sealed bool) {
	for _, f := range facts {
		f.acked, f.sealed = true, sealed
	}
}

// write writes samples in one request. It returns the facts that were acknowledged, and false, because the samples
// aren't sealed yet.
func (r *pagesRun) write(s *sentSamples) (facts []*pagesFact, sealed bool) {
	b := r.NewBatch("t")
	for i, ls := range s.series {
		series, err := b.Define(nil, ls)
		if err != nil {
			r.fail("defining: %v", err)
			break
		}
		for j, t := range s.times {
			switch err := b.Float(series, t, 0, s.v); {
			case err == nil:
				facts = append(facts, s.facts[i*len(s.times)+j])
			case !errors.Is(err, ErrTooOld) && !errors.Is(err, ErrTooFarAhead) && !errors.Is(err, ErrMaybeAhead) &&
				!errors.Is(err, ErrDroppedAhead):
				r.fail("writing: %v", err)
			}
		}
	}
	if !r.tolerate("committing", b.Commit(context.Background())) {
		return nil, false
	}
	return facts, false
}

// imports imports samples. If all of them were accepted, it returns their facts and true, because imported samples are
// stored as sealed rows.
func (r *pagesRun) imports(s *sentSamples) ([]*pagesFact, bool) {
	var list []ImportedSeries
	for _, ls := range s.series {
		samples := &chunk.Samples{}
		for _, t := range s.times {
			samples.AppendFloat(t, 0, s.v)
		}
		list = append(list, ImportedSeries{ls, samples})
	}
	stats, err := r.Import(context.Background(), "t", list)
	if !r.tolerate("importing", err) || stats.Expired+stats.Ahead > 0 {
		return nil, false
	}
	if stats.Refused > 0 {
		r.fail("importing: %v", stats.Refusals)
	}
	return s.facts, true
}

// beside writes and seals samples while it imports others, with complete and canceled queries at the same time.
func (r *pagesRun) beside(written, imported *sentSamples) {
	ctx, cancel := context.WithCancel(context.Background())
	var all, queries sync.WaitGroup
	var ofWrite, ofImport []*pagesFact
	all.Go(func() {
		ofWrite, _ = r.write(written)
		r.tolerate("sealing", r.SealAll(context.Background()))
	})
	all.Go(func() { ofImport, _ = r.imports(imported) })
	for range 2 {
		queries.Go(func() {
			for {
				if a := r.answer(context.Background(), rollup.Raw); a != nil {
					if problem := r.model.judge(a); problem != "" {
						r.fail("meanwhile: %s", problem)
					}
				}
				if ctx.Err() != nil {
					return
				}
				r.endedQuery()
			}
		})
	}
	all.Wait()
	cancel()
	queries.Wait()
	r.acked(ofWrite, false)
	r.acked(ofImport, true)
}

func (r *pagesRun) seal() {
	if r.tolerate("sealing", r.SealAll(context.Background())) {
		r.model.sealed()
	}
}

// expire calls Expire, and records the facts whose windows have no rows any more.
func (r *pagesRun) expire() {
	r.bounds()
	_, err := r.Expire(context.Background())
	r.tolerate("expiring", err)
	for res := range rollup.Resolution(resolutions) {
		empty := map[string]bool{} // whether windows are empty, by window and metric
		r.model.dropped(res, func(series string, t int64) bool {
			metric := strings.Split(series, `"`)[1]
			if !strings.HasPrefix(series, "{__name__") {
				metric = series[:1]
			}
			window := r.period.WindowAt(res, t)
			at := fmt.Sprint(window, metric)
			is, known := empty[at]
			if !known {
				is = r.isEmpty(res, window, metric)
				empty[at] = is
			}
			return is
		})
	}
}

// isEmpty reports whether a metric has no rows and no pages in a window.
func (r *pagesRun) isEmpty(res rollup.Resolution, window int64, metric string) bool {
	for class := range r.retention.Classes() {
		for _, table := range []*engine.Table{format.TableOf(res), format.PagesOf(res)} {
			for _, err := range r.eng.Scan(context.Background(), engine.Range{
				Table: table, Partition: format.SeriesPartition(window, "t", metric, format.ClassShardOf(class, 0)),
				KeysOnly: true, Limit: 1,
			}) {
				if err != nil {
					r.fail("looking for rows: %v", err)
				}
				return false
			}
		}
	}
	return true
}

// bounds records the times up to which rows may be hidden now.
func (r *pagesRun) bounds() {
	now := r.opts.Now()
	for res := range rollup.Resolution(resolutions) {
		for class := range r.retention.Classes() {
			if kept := r.retention.RetentionOf("t", class).Duration(res); kept != 0 {
				r.model.hides(res, now.Add(-kept).UnixMilli())
			}
		}
	}
}

// quiet corrects the clock, seals all samples, and checks the store, before and after a restart.
func (r *pagesRun) quiet() {
	r.off.set(0)
	r.line([]string{"pass", "30h"})
	for range 2 {
		if r.seal(); r.problem != "" {
			return
		}
		r.tolerate("cleaning", r.CleanTombstones(context.Background(), "t"))
		r.look()
		if _, err := r.Check(context.Background(), func(problem string) { r.fail("check: %s", problem) }); err != nil {
			r.fail("checking: %v", err)
		}
		r.stop()
		r.start()
	}
}
