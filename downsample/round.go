package downsample

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/panics"
)

const (
	// roundLimit bounds the time that a round seals. After that time, the slots are listed again, because partitions
	// move between processes and the head must release samples that other processes have sealed.
	roundLimit = 5 * time.Minute
	// thoroughInterval is the time between listings of the windows whose series need counting.
	thoroughInterval = 10 * time.Minute
	// sweepInterval is the time between two sweeps.
	sweepInterval = 24 * time.Hour
	// reliefInterval is the interval at which the bytes of settled slots in the head are checked. If the settled slots
	// without writes for reliefRest hold more than the bound, these slots are sealed. If all settled slots hold more
	// than reliefMost times the bound, all of them are sealed.
	reliefInterval = time.Second
	reliefRest     = 2 * time.Second
	reliefMost     = 4
	// early is how long before its end a slot may be sealed while the head is overfull. It is longer than a slot, and
	// longer than the time by which samples may be ahead of the clock, so that all slots can be sealed.
	early = 48 * time.Hour
)

// Round seals the settled slots of this process' partitions, the longest-waiting first, and tidies up. Then it computes
// missing rollups, compacts rollups and counts series until the next round is due.
func (l *Loop) Round(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := l.opts.Now()
	doubt := l.store.Member().MayRemove()
	l.progress.recordTask("checking the clock", doubt, began) // the store logs it
	whole := l.seal(ctx, began, l.list(ctx))
	if doubt != nil { // nothing is deleted or unlisted
		l.store.ReleaseSeries()
	} else {
		l.tidy(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	for _, p := range l.progress.endRound(l.opts.Now(), whole) {
		failures, err := l.progress.streakOf(p)
		l.opts.Logger.Error("sealing of a partition fails in every round; its samples stay in the staging log",
			"partition", p, "rounds", failures, "err", err, "do", doStuck)
	}
	l.metrics.rounds.Inc()
	if whole {
		l.rollUp(ctx, began)
		l.compact(ctx, began)
		if doubt == nil { // this deletes outdated counts
			l.count(ctx, began)
		}
	}
}

func (l *Loop) lag() time.Duration {
	_, lag := l.behind()
	return lag
}

// behind returns the number of waiting slots and the lag of the oldest at the current time, see progress.behind.
func (l *Loop) behind() (waiting int, lag time.Duration) {
	now, _ := l.store.Member().Clock.Times()
	return l.progress.behind(now)
}

// Relieve seals settled slots before the next round if the head holds too many bytes of them, as during a backfill.
// This bounds the head's memory however long the backfill takes. Slots that are still written to are deferred until the
// writes stop, because otherwise they would have to be sealed again. If the head holds reliefMost times the bound, as
// when a backfill writes the whole time range series by series, these slots are sealed as well. Relieve returns false
// if sealing failed.
func (l *Loop) Relieve(ctx context.Context) bool {
	rest := reliefRest
	if !l.headAbove(l.opts.HeadBytes, rest) {
		if rest = 0; !l.headAbove(reliefMost*l.opts.HeadBytes, rest) {
			return true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.failures.Load()
	all := slices.DeleteFunc(l.list(ctx), func(w storage.Staged) bool { return !l.store.IsIdle(w.Work, rest) })
	l.seal(ctx, l.opts.Now(), all)
	l.store.ReleaseSeries() // most series in the head are short-lived
	return l.failures.Load() == before
}

// headAbove reports whether the settled slots in the head that haven't been written to for rest hold more bytes than
// most.
func (l *Loop) headAbove(most int64, rest time.Duration) bool {
	if l.opts.HeadBytes <= 0 {
		return false
	}
	bytes := int64(0)
	for p := range l.store.Partitions() {
		if l.owns(p) {
			bytes += l.store.SettledHeadBytes(p, l.opts.Settle.Milliseconds(), rest)
		}
	}
	return bytes > most
}

// list returns the waiting slots of this process' partitions, the longest-waiting first. It also releases from the head
// the samples that other processes have sealed in other partitions.
func (l *Loop) list(ctx context.Context) (all []storage.Staged) {
	settle := l.opts.Settle
	if l.store.IsHeadOverfull() {
		settle = -early
		l.opts.Logger.Warn(
			"unsealed samples exceed --storage.head-bytes, so new ones are rejected; slots are therefore sealed "+
				"before they end, in more and smaller pieces",
			"do", "to avoid this, raise --storage.head-bytes",
		)
	}
	for p := range l.store.Partitions() {
		if ctx.Err() != nil {
			return nil
		}
		if !l.owns(p) {
			l.progress.forget(p)
			if err := l.store.ReleaseSealed(ctx, p); err != nil {
				l.failed(ctx, "releasing slots sealed by other processes", err, "partition", p)
			}
			continue
		}
		l.worker.work(ctx, fmt.Sprintf("listing pending work of partition %d", p), l.lag, func(func()) {
			var found []storage.Staged
			err := panics.Call("listing pending work",
				func() (err error) { found, err = l.store.Staged(ctx, p, settle.Milliseconds()); return err })
			if err != nil {
				l.progress.recordFailure(p, err)
				l.failed(ctx, "listing pending work", err, "partition", p)
				return
			}
			l.progress.set(p, found)
			all = append(all, found...)
		})
	}
	slices.SortStableFunc(all, func(a, b storage.Staged) int {
		return cmp.Or(cmp.Compare(a.SinceMS, b.SinceMS), cmp.Compare(a.Slot, b.Slot))
	})
	return all
}

// seal seals slots with all workers. It reports whether it tried all of them.
func (l *Loop) seal(ctx context.Context, began time.Time, all []storage.Staged) bool {
	work := make(chan []*storage.Staged)
	over := func() bool { return ctx.Err() != nil || l.opts.Now().Sub(began) > roundLimit }
	var sealing sync.WaitGroup
	var short atomic.Bool
	for _, h := range l.pacer.workers {
		sealing.Go(func() {
			for pass := range work {
				if over() { // passes wait for a worker
					short.Store(true)
					continue
				}
				what := fmt.Sprintf("sealing slot %d of partition %d", pass[0].Slot, pass[0].Partition)
				if more := len(pass) - 1; more > 0 {
					what += fmt.Sprintf(", and %d more of the same day", more)
				}
				h.work(ctx, what, l.lag, func(func()) {
					// A pass that panics is tried again in the next round.
					_ = panics.Call("sealing", func() error { l.sealPass(ctx, pass); return nil })
				})
			}
		})
	}
	works := make([]storage.Work, len(all))
	for i := range all {
		works[i] = all[i].Work
	}
	for _, at := range l.store.PlanPasses(works, l.opts.Workers) {
		if over() {
			short.Store(true)
			break
		}
		if pass := l.stillOwned(all, at); len(pass) > 0 {
			work <- pass
		}
	}
	close(work)
	sealing.Wait()
	return !short.Load() && ctx.Err() == nil
}

// stillOwned returns the slots of all at the indices in at, without slots whose partition no longer belongs to this
// process.
func (l *Loop) stillOwned(all []storage.Staged, at []int) (pass []*storage.Staged) {
	for _, i := range at {
		if w := &all[i]; l.owns(w.Partition) {
			pass = append(pass, w)
		} else {
			l.progress.forget(w.Partition)
		}
	}
	return pass
}

// sealPass seals slots together. If that fails, it seals each slot separately, so that one failing slot doesn't block
// the others.
func (l *Loop) sealPass(ctx context.Context, pass []*storage.Staged) {
	began := l.opts.Now()
	works := make([]storage.Work, len(pass))
	for i, w := range pass {
		works[i] = w.Work
	}
	stats := make([]storage.SealStats, len(works))
	err := panics.Call("sealing", func() error {
		sealed, err := l.store.SealTogether(ctx, works)
		copy(stats, sealed)
		return err
	})
	now := l.opts.Now()
	var left []*storage.Staged
	for i, w := range pass {
		if stats[i].Done {
			l.sealed(w, stats[i], began, now)
		} else {
			left = append(left, w)
		}
	}
	if err == nil {
		return
	}
	if len(pass) == 1 {
		w := pass[0]
		l.progress.recordFailure(w.Partition, err)
		l.failed(ctx, "sealing", err, "partition", w.Partition, "slot", w.Slot)
		return
	}
	if ctx.Err() != nil {
		return
	}
	l.opts.Logger.Warn("sealing several slots together failed; sealing each on its own",
		"slots", len(left), "partition", left[0].Partition, "slot", left[0].Slot, "err", err)
	for i := range left {
		if ctx.Err() == nil {
			l.sealPass(ctx, left[i:i+1])
		}
	}
}

// sealed records the result of a seal.
func (l *Loop) sealed(w *storage.Staged, stats storage.SealStats, began, now time.Time) {
	l.progress.recordSealed(w, stats, now)
	if stats.Blobs == 0 {
		return
	}
	l.metrics.sealed.Inc()
	if stats.Repaired > 0 {
		l.metrics.repaired.Inc()
	}
	l.opts.Logger.Debug(
		"sealed", "partition", w.Partition, "slot", w.Slot, "blobs", stats.Blobs, "series", stats.Series,
		"samples", stats.Samples, "bytes", stats.Bytes, "again", stats.Repaired > 0, "took", now.Sub(began),
	)
}

// tidy unlists sealed slots, releases quiet series, and deletes windows past their retention.
func (l *Loop) tidy(ctx context.Context) {
	for p := range l.store.Partitions() {
		if ctx.Err() != nil {
			return
		}
		if !l.owns(p) {
			continue
		}
		err := panics.Call("unlisting sealed slots", func() error { return l.store.UnlistSlots(ctx, p) })
		if err != nil {
			l.progress.recordFailure(p, err)
			l.failed(ctx, "unlisting sealed slots", err, "partition", p)
		}
	}
	l.store.ReleaseSeries()
	if l.owns(0) {
		l.worker.work(ctx, "deleting windows past their retention", l.lag, func(func()) { l.expire(ctx) })
	}
	l.sweep(ctx)
}

func (l *Loop) expire(ctx context.Context) {
	n := 0
	err := panics.Call("deleting windows", func() (err error) { n, err = l.store.Expire(ctx); return err })
	l.recordTask(ctx, "deleting windows past their retention", err)
	if n > 0 {
		l.opts.Logger.Info("deleted windows past their retention", "windows", n)
	}
}

// sweep seals staged rows of slots that are no longer listed, such as rows that reappeared. It runs once per
// sweepInterval.
func (l *Loop) sweep(ctx context.Context) {
	now := l.opts.Now()
	if !l.opts.Shared || now.Sub(l.swept) < sweepInterval {
		return
	}
	first := l.swept.IsZero()
	l.swept = now
	if first {
		return // not while the process starts
	}
	for p := range l.store.Partitions() {
		if ctx.Err() != nil || !l.owns(p) {
			continue
		}
		l.worker.work(ctx, fmt.Sprintf("sweeping partition %d", p), l.lag, func(func()) {
			n, err := l.store.SealUnlisted(ctx, p)
			if err != nil {
				l.progress.recordFailure(p, err)
				l.failed(ctx, "sweeping", err, "partition", p)
			}
			if n > 0 {
				l.opts.Logger.Warn(
					"sealed samples that reappeared after they were sealed; check that the cluster is repaired "+
						"regularly, within gc_grace_seconds",
					"partition", p, "slots", n,
				)
			}
		})
	}
}

// failed logs a failed step. endRound and recordTask log repeated failures of a partition or a task at a higher level.
func (l *Loop) failed(ctx context.Context, what string, err error, args ...any) {
	if ctx.Err() != nil {
		return
	}
	l.failures.Add(1)
	l.metrics.failures.Inc()
	if l.warned.admits(what+": "+err.Error(), l.opts.Now()) {
		l.opts.Logger.Warn(what+" failed; the next round retries", append(args, "err", err)...)
	}
}

// warnEvery is the minimum time between two logs of the same failure. maxWarned bounds the number of failures whose
// last log is kept in memory.
const (
	warnEvery = time.Minute
	maxWarned = 1000
)

// warned holds the times at which failures were logged.
type warned struct {
	mu sync.Mutex
	at map[string]time.Time
}

// admits reports whether a failure should be logged, because it wasn't logged within warnEvery.
func (w *warned) admits(failure string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.at[failure]; ok && now.Sub(at).Abs() < warnEvery {
		return false
	}
	if w.at == nil || len(w.at) >= maxWarned {
		w.at = map[string]time.Time{}
	}
	w.at[failure] = now
	return true
}

// recordTask records the result of a task that doesn't belong to a partition.
func (l *Loop) recordTask(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		l.failed(ctx, what, err)
	}
	if l.progress.recordTask(what, err, l.opts.Now()) {
		l.opts.Logger.Error(what+" failed several times in a row", "err", err, "do", doStuck)
	}
}
