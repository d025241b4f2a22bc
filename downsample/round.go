package downsample

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage"
)

const (
	// roundLimit is how long a round goes on sealing before it looks anew at what there is: partitions pass from
	// process to process, and what others have sealed is to be let go of.
	roundLimit = 5 * time.Minute
	// sweepInterval is the time between two sweeps.
	sweepInterval = 24 * time.Hour
	// early is how long before its end a slot may be sealed: longer than any slot, and than samples may be ahead.
	early = 48 * time.Hour
)

// Round seals the settled slots of this process' partitions, what has waited longest first, then tidies up, and
// makes rollups that an earlier release hasn't made until the next round is due.
func (l *Loop) Round(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := l.opts.Now()
	doubt := l.store.MayRemove()
	l.progress.chore("believing the clock", doubt, began) // The store's log tells of it.
	whole := l.seal(ctx, began, l.list(ctx))
	if doubt != nil { // Nothing goes, and no mark moves.
		l.store.LetGo()
	} else {
		l.tidy(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	for _, p := range l.progress.endRound(l.opts.Now(), whole) {
		failures, err := l.progress.streakOf(p)
		l.opts.Logger.Error("a partition is stuck: its work has failed in each of the last rounds, and its samples stay in the stage",
			"partition", p, "rounds", failures, "err", err, "do", doStuck)
	}
	l.metrics.rounds.Inc()
	if whole {
		l.rollUp(ctx, began)
	}
}

func (l *Loop) lag() time.Duration {
	_, lag := l.progress.behind(l.opts.Now())
	return lag
}

// list finds what waits in this process' partitions, what has waited longest first, and lets go of what others
// have sealed of the rest.
func (l *Loop) list(ctx context.Context) (all []storage.Staged) {
	settle := l.opts.Settle
	if l.store.HeadOverfull() {
		settle = -early
		l.opts.Logger.Warn("what isn't sealed takes so much memory that samples are refused: slots are sealed before they are over, in more and smaller pieces",
			"do", "give it more memory, by --storage.head-bytes")
	}
	for p := range l.store.Partitions() {
		if ctx.Err() != nil {
			return nil
		}
		if !l.owns(p) {
			l.progress.forget(p)
			if err := l.store.Forget(ctx, p); err != nil {
				l.failed(ctx, "letting go of what others have sealed", err, "partition", p)
			}
			continue
		}
		l.hand.work(ctx, fmt.Sprintf("listing what waits in partition %d", p), l.lag, func(func()) {
			found, err := l.store.Staged(ctx, p, settle.Milliseconds())
			if err != nil {
				l.progress.fail(p, err)
				l.failed(ctx, "listing waiting work", err, "partition", p)
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

// seal seals slots, with all hands. It returns whether all of them were tried.
func (l *Loop) seal(ctx context.Context, began time.Time, all []storage.Staged) (whole bool) {
	work := make(chan *storage.Staged)
	var sealing sync.WaitGroup
	for _, h := range l.pacer.hands {
		sealing.Go(func() {
			for w := range work {
				h.work(ctx, fmt.Sprintf("sealing slot %d of partition %d", w.Slot, w.Partition), l.lag, func(func()) { l.sealOne(ctx, w) })
			}
		})
	}
	whole = true
	for i := range all {
		w := &all[i]
		if ctx.Err() != nil || l.opts.Now().Sub(began) > roundLimit {
			whole = false
			break
		}
		if l.owns(w.Partition) {
			work <- w
		} else {
			l.progress.forget(w.Partition) // It has passed to another process.
		}
	}
	close(work)
	sealing.Wait()
	return whole && ctx.Err() == nil
}

func (l *Loop) sealOne(ctx context.Context, w *storage.Staged) {
	began := l.opts.Now()
	stats, err := l.store.Seal(ctx, w.Work)
	if err != nil {
		l.progress.fail(w.Partition, err)
		l.failed(ctx, "sealing", err, "partition", w.Partition, "slot", w.Slot)
		return
	}
	now := l.opts.Now()
	l.progress.done(w, stats, now)
	if stats.Blobs == 0 {
		return
	}
	l.metrics.sealed.Inc()
	if stats.Repaired > 0 {
		l.metrics.repaired.Inc()
	}
	l.opts.Logger.Debug("sealed", "partition", w.Partition, "slot", w.Slot, "blobs", stats.Blobs, "series", stats.Series,
		"samples", stats.Samples, "bytes", stats.Bytes, "again", stats.Repaired > 0, "took", now.Sub(began))
}

// tidy moves the marks, lets go of quiet series, and drops what is past its retention.
func (l *Loop) tidy(ctx context.Context) {
	for p := range l.store.Partitions() {
		if ctx.Err() != nil {
			return
		}
		if !l.owns(p) {
			continue
		}
		if err := l.store.Advance(ctx, p); err != nil {
			l.progress.fail(p, err)
			l.failed(ctx, "moving the marks", err, "partition", p)
		}
	}
	l.store.LetGo()
	if l.owns(0) {
		l.hand.work(ctx, "dropping windows past their retention", l.lag, func(func()) { l.expire(ctx) })
	}
	l.sweep(ctx)
}

func (l *Loop) expire(ctx context.Context) {
	n, err := l.store.Expire(ctx)
	l.chore(ctx, "dropping windows past their retention", err)
	if n > 0 {
		l.opts.Logger.Info("dropped windows past their retention", "windows", n)
	}
}

// sweep looks, once in a long while, for work that no mark and no pending row leads to.
func (l *Loop) sweep(ctx context.Context) {
	now := l.opts.Now()
	if !l.opts.Shared || now.Sub(l.swept) < sweepInterval {
		return
	}
	first := l.swept.IsZero()
	l.swept = now
	if first {
		return // Not while the process starts.
	}
	for p := range l.store.Partitions() {
		if ctx.Err() != nil || !l.owns(p) {
			continue
		}
		l.hand.work(ctx, fmt.Sprintf("sweeping partition %d", p), l.lag, func(func()) {
			n, err := l.store.Sweep(ctx, p)
			if err != nil {
				l.progress.fail(p, err)
				l.failed(ctx, "sweeping", err, "partition", p)
			}
			if n > 0 {
				l.opts.Logger.Warn("sealed samples that had come back after they were sealed: is the cluster repaired in time?", "partition", p, "slots", n)
			}
		})
	}
}

// failed tells of a step that failed. Whoever looks at a partition or a chore that goes on failing hears of it
// louder: see endRound and chore.
func (l *Loop) failed(ctx context.Context, what string, err error, args ...any) {
	if ctx.Err() != nil {
		return
	}
	l.metrics.failures.Inc()
	l.opts.Logger.Warn(what+" failed; the next round tries again", append(args, "err", err)...)
}

// chore notes how something went that isn't a partition's.
func (l *Loop) chore(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		l.failed(ctx, what, err)
	}
	if l.progress.chore(what, err, l.opts.Now()) {
		l.opts.Logger.Error(what+" has failed several times in a row", "err", err, "do", doStuck)
	}
}
