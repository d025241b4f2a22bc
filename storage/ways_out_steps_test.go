package storage

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/rollup"
)

// line executes one line of a history.
func (r *waysRun) line(line string) {
	words := strings.Fields(line)
	if !strings.HasPrefix(words[0], "p") || words[0] == "pass" {
		r.step(words)
		return
	}
	n, _ := strconv.Atoi(words[0][1:])
	if n < 1 || n > len(r.procs) {
		r.fail("no process %q", words[0])
		return
	}
	p := r.procs[n-1]
	switch words[1] {
	case "fault":
		f, err := parseFault(strings.Join(words[2:], " "))
		if err != nil {
			r.fail("%v", err)
		}
		p.faults.set(&f, 0)
		return
	case "cancel":
		p.faults.set(nil, int(number(words, 2)))
		return
	}
	p.step(words[1:])
	p.faults.set(nil, 0)
}

// step executes a step that isn't an operation of a process.
func (r *waysRun) step(words []string) {
	switch words[0] {
	case "pass":
		for d := range r.strides(length(words, 1), 12*time.Hour) {
			if r.problem != "" {
				return
			}
			r.pass(d)
			for _, p := range r.procs {
				if !p.opts.Shared {
					p.late()
				}
				p.round(p.faults.drawn())
			}
		}
	case "copy":
		if r.expiring != nil {
			r.copyRows()
		}
	case "back":
		if r.expiring != nil && len(r.copied) > 0 {
			r.expiring.ForgetDeletes()
			if err := r.expiring.Write(context.Background(), r.copied); err != nil {
				r.fail("bringing rows back: %v", err)
			}
		}
	default:
		r.fail("no operation %q", words[0])
	}
}

// strides divides a duration into steps of the given length, or into two steps if the engine is slow. The last step may
// be shorter.
func (r *waysRun) strides(d, step time.Duration) iter.Seq[time.Duration] {
	if r.slow {
		step = max(step, (d+1)/2)
	}
	return func(yield func(time.Duration) bool) {
		for ; d > 0 && yield(min(d, step)); d -= step {
		}
	}
}

// copyRows copies the rows that can reappear later.
func (r *waysRun) copyRows() {
	r.copied = nil
	for _, b := range r.expiring.All() {
		switch b.Table {
		case engine.Stage, engine.Staged, engine.Deletes:
			r.copied = append(r.copied, b)
		}
	}
}

func number(words []string, i int) int64 {
	if i >= len(words) {
		return 0
	}
	n, _ := strconv.ParseInt(words[i], 10, 64)
	return n
}

func length(words []string, i int) time.Duration {
	if i >= len(words) {
		return 0
	}
	d, _ := time.ParseDuration(words[i])
	return d
}

// setClock sets the error of the process' clock.
func (p *waysProcess) setClock(off time.Duration) {
	if (off - p.off.get()).Abs() > membership.MaxLeap { // A smaller change leaves the clock trusted.
		ran := p.r.passed.get() - p.since
		if ran >= 420*day/30 { // No clock in these histories is untrusted for longer.
			p.trusted = nil
		}
		if ran >= 55*time.Minute {
			p.trusted = append(p.trusted, p.off.get())
		}
		p.since = p.r.passed.get()
	}
	p.off.set(off)
}

// late applies the withheld writes.
func (p *waysProcess) late() {
	if err := p.eng.ApplyWithheld(context.Background()); err != nil {
		p.r.fail("applying what was withheld: %v", err)
	}
}

func (p *waysProcess) step(words []string) {
	ctx, faulty := context.Background(), p.faults.drawn()
	switch words[0] {
	case "round", "expire", "clean", "workoff":
		if !p.opts.Shared { // An engine in the same process completes its work.
			p.late()
		}
	}
	switch words[0] {
	case "write":
		p.write(words)
	case "import":
		p.imports(words)
	case "delete":
		p.delete(words)
	case "seal":
		err := p.SealAll(ctx)
		if err != nil && !faulty && !errors.Is(err, membership.ErrClock) {
			p.r.fail("sealing: %v", err)
		}
		if err == nil {
			p.r.model.sealed()
		}
	case "round":
		p.round(faulty)
	case "expire":
		p.expire(faulty)
	case "clean":
		p.removed("cleaning", p.CleanTombstones(ctx, "t"), faulty)
	case "workoff":
		if err := p.WorkOffDeletes(ctx, "t"); err != nil && !errors.Is(err, membership.ErrClock) {
			p.r.fail("making rollups anew: %v", err)
		}
	case "restart":
		p.end(false, 0)
		p.startWith(words[1:])
	case "crash":
		p.end(true, int(number(words, 1)))
		p.startWith(words[2:])
	case "skew":
		p.setClock(length(words, 1))
		p.r.pass(0)
	case "late":
		p.late()
	default:
		p.r.fail("no operation %q", words[0])
	}
}

func (p *waysProcess) startWith(words []string) {
	p.opts.Retention, p.opts.Retention5m, p.opts.Retention1h = length(words, 0), length(words, 1), length(words, 2)
	p.start()
}

// samples returns the series and times of a line, and the next value, which is higher than all previous values.
func (p *waysProcess) samples(words []string) (series int64, times []int64, v float64) {
	first := p.r.now().Add(-length(words, 2)).Truncate(time.Minute)
	for i := range number(words, 3) {
		times = append(times, first.Add(time.Duration(i)*time.Minute).UnixMilli())
	}
	p.r.values++
	return number(words, 1), times, p.r.values
}

// fact returns the fact of a sample that is sent now.
func (p *waysProcess) fact(acked bool) waysFact {
	f := waysFact{acked: acked, kept: format.MaxTime}
	for _, other := range p.r.procs {
		f.kept = min(f.kept, keptMS(other.opts.Retention))
	}
	return f
}

func (p *waysProcess) write(words []string) {
	series, times, v := p.samples(words)
	b := p.NewBatch("t")
	s, err := b.Define(nil, waysLabels(series))
	for i := 0; i < len(times) && err == nil; i++ {
		err = b.Float(s, times[i], 0, v)
	}
	if err != nil {
		b.Release()
		if !errors.Is(err, ErrTooOld) && !errors.Is(err, ErrTooFarAhead) && !errors.Is(err, ErrMaybeAhead) &&
			!errors.Is(err, ErrDroppedAhead) {
			p.r.fail("writing: %v", err)
		}
		return
	}
	told := map[int64]int64{}
	for _, t := range times {
		told[t] = p.told(rollup.Raw, t)
	}
	if err = b.Commit(context.Background()); err != nil && !errors.Is(err, membership.ErrClock) {
		p.r.fail("committing: %v", err)
	}
	for _, t := range times { // Before the raw boundary, samples are stored only in rollups.
		f := p.fact(err == nil)
		f.rawless = t <= told[t]
		p.r.model.put(series, []int64{t}, v, f)
	}
}

func (p *waysProcess) imports(words []string) {
	series, times, v := p.samples(words)
	unfinished := p.faults.withholds(engine.Raw)
	if !p.importSamples(series, times, v) && unfinished {
		p.r.unfinished = append(p.r.unfinished, waysImport{series, times, v})
	}
}

// waysImport is an import that failed while the write of one of its raw rows was withheld.
type waysImport struct {
	series int64
	times  []int64
	v      float64
}

// importSamples imports samples, and reports whether the import succeeded.
func (p *waysProcess) importSamples(series int64, times []int64, v float64) bool {
	var samples chunk.Samples
	for _, t := range times {
		samples.AppendFloat(t, 0, v)
	}
	stats, err := p.Import(context.Background(), "t", []ImportedSeries{{waysLabels(series), &samples}})
	// A delete that was announced and didn't come into force blocks imports for some time. The import must be retried.
	ok := p.removed("importing", err, p.faults.drawn() || errors.Is(err, errDeleting))
	f := p.fact(ok && stats.Expired+stats.Ahead+stats.Refused == 0)
	f.rawless = stats.RollupsOnly > 0
	if ok && stats.RollupsOnly == len(times) {
		finest := rollup.FiveMinutes
		if stats.HoursOnly > 0 {
			finest = rollup.OneHour
		}
		p.r.model.rolledUp(series, times, finest)
	}
	if errors.Is(err, membership.ErrClock) {
		return ok
	}
	p.r.model.put(series, times, v, f)
	for _, t := range times {
		if kept := p.opts.Retention; f.rawless && !p.r.model.vanished(t, p.r.now().UnixMilli()) || !ok &&
			kept > 0 && t <= p.opts.Now().Add(-kept).UnixMilli() {
			p.r.model.horizons[rollup.Raw].lack(t)
		}
	}
	return ok
}

// repeatImports applies withheld writes, and repeats the unfinished imports. Until a failed import is repeated, one of
// its raw rows may be missing in the rollups of its slot, because it was applied after they were computed.
func (r *waysRun) repeatImports() {
	for _, p := range r.procs {
		p.late()
	}
	r.unfinished = slices.DeleteFunc(
		r.unfinished, func(m waysImport) bool { return r.procs[0].importSamples(m.series, m.times, m.v) },
	)
}

func (p *waysProcess) delete(words []string) {
	matchers, series := ofMetric(), int64(-1)
	if words[1] != "*" {
		series = number(words, 1)
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, "host", words[1]))
	}
	hour := func(i int) int64 {
		return format.FloorDiv(p.r.now().Add(-length(words, i)).UnixMilli(), format.HourMS) * format.HourMS
	}
	start, end := hour(2)+1, hour(3)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.faults.deleting(cancel)
	err := p.Delete(ctx, "t", start, end, matchers...)
	switch done := p.removed("deleting", err, p.faults.drawn() || ctx.Err() != nil); {
	case done, !errors.Is(err, membership.ErrClock):
		p.r.model.delete(series, start, end, done)
	}
}
