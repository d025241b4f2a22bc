package downsample

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
)

// Range is the time range of a plan.
type Range struct {
	// MinMS and MaxMS are in milliseconds. Slots and windows that overlap the range are processed completely.
	MinMS, MaxMS int64
	// Settle is the time between a slot's end and its sealing.
	Settle time.Duration
}

// Everything returns the range of all times.
func Everything(settle time.Duration) Range {
	return Range{MinMS: -maxTime, MaxMS: maxTime, Settle: settle}
}

// Plan lists the work to do in a range, the oldest first. A step is a slot of a partition that is to be sealed or
// rolled up, or a window that is to be compacted or counted.
//
//	NewPlan ──► Run: seal Slots ──► unlist them ──► roll up Windows ──► compact ──► count
//
// A plan may run while servers use the same engine. A run may be stopped at any time. A new plan then contains the rest
// of the work.
type Plan struct {
	Range   Range
	Slots   []storage.Staged
	Windows []storage.Unrolled
	// Compact lists past windows of rollups whose chunks are to be merged into long chunks.
	Compact []ended.OverWindow
	// Count lists past windows of raw rows whose series are to be counted.
	Count []ended.OverWindow
	// Expired lists slots whose raw window is past the retention of this store's options. The plan doesn't seal them,
	// because sealing would drop their samples even if a server has a longer retention. A server seals them instead.
	Expired []storage.Staged
}

// NewPlan lists the work to do. It writes nothing.
func NewPlan(ctx context.Context, store *storage.Store, r Range) (*Plan, error) {
	if err := store.WaitReady(ctx); err != nil {
		return nil, err
	}
	p := &Plan{Range: r}
	for i := range store.Partitions() {
		list, err := store.Staged(ctx, i, r.Settle.Milliseconds())
		if err != nil {
			return nil, err
		}
		for _, w := range list {
			switch {
			case w.EndMS < r.MinMS || w.StartMS >= r.MaxMS: // (start, end]
			case w.Expired:
				p.Expired = append(p.Expired, w)
			default:
				p.Slots = append(p.Slots, w)
			}
		}
	}
	slices.SortStableFunc(p.Slots, func(a, b storage.Staged) int { return cmp.Compare(a.Slot, b.Slot) })
	var err error
	for u, err := range store.Unrolled(ctx, max(r.MinMS, -maxTime), min(r.MaxMS, maxTime), func() {}) {
		if err != nil {
			return nil, err
		}
		p.Windows = append(p.Windows, u)
	}
	slices.SortStableFunc(p.Windows, func(a, b storage.Unrolled) int { return cmp.Compare(a.EndMS, b.EndMS) })
	if p.Compact, err = r.within(store.Compactable(ctx, func() {})); err != nil {
		return nil, err
	}
	p.Count, err = r.within(store.Counts().Uncounted(ctx, func() {}))
	return p, err
}

// within returns the windows that overlap the range, the oldest first.
func (r *Range) within(all iter.Seq2[ended.OverWindow, error]) (list []ended.OverWindow, err error) {
	for w, err := range all {
		if err != nil {
			return nil, err
		}
		if w.EndMS >= r.MinMS && w.StartMS < r.MaxMS {
			list = append(list, w)
		}
	}
	slices.SortStableFunc(list, func(a, b ended.OverWindow) int { return cmp.Compare(a.EndMS, b.EndMS) })
	return list, nil
}

// Steps returns the number of steps.
func (p *Plan) Steps() int {
	n := len(p.Slots) + len(p.Compact) + len(p.Count)
	for i := range p.Windows {
		n += p.Windows[i].Seals
	}
	return n
}

// Done is the progress of a run.
type Done struct {
	// Steps is the number of steps that were tried, out of All steps.
	Steps, All int
	// Now describes the next step.
	Now string
	// Slots is the number of sealed slots, and Samples the number of their samples. Repaired is the number of these
	// slots that had been sealed before, and Left the number of slots with unreadable rows.
	Slots, Repaired, Left, Samples int
	// Windows is the number of windows that were rolled up, and Series the number of their series, counted once per
	// slot.
	Windows, Series int
	// Compacted is the number of compacted windows, and Chunks the number of chunks that became parts of long chunks.
	Compacted, Chunks int
	// Counted is the number of windows of raw rows whose series were counted.
	Counted int
	// Failed is the number of failed steps. They may succeed in a new plan.
	Failed int
}

// maxFailures is the number of consecutive failures after which a run stops, because the cause can't be a single slot.
const maxFailures = 5

// errGaveUp means that maxFailures consecutive steps failed and the remaining steps weren't tried.
var errGaveUp = errors.New("downsample: gave up after repeated failures")

// Run executes the plan without resting, and calls tell before each step. It continues after failed steps and returns
// the first error, or the context's.
func (p *Plan) Run(ctx context.Context, store *storage.Store, tell func(Done)) (Done, error) {
	x := &run{ctx: ctx, store: store, tell: tell, done: Done{All: p.Steps()}}
	err := x.all(p)
	if ctx.Err() != nil {
		return x.done, ctx.Err()
	}
	if err == nil && x.first != nil {
		err = fmt.Errorf("%d of %d steps failed; the first error: %w", x.done.Failed, x.done.All, x.first)
	}
	return x.done, err
}

// run is the state of a running plan.
type run struct {
	ctx   context.Context
	store *storage.Store
	tell  func(Done)
	done  Done
	first error // of the first step that failed
	inRow int   // number of consecutive failures
}

func (x *run) all(p *Plan) error {
	for i := range p.Slots {
		w := &p.Slots[i]
		err := x.step(
			fmt.Sprintf("sealing the slot until %s, partition %d", shortTime(w.EndMS), w.Partition), 1, func() error {
				stats, err := x.store.Seal(x.ctx, w.Work)
				switch {
				case err != nil:
					return fmt.Errorf("sealing slot %d of partition %d: %w", w.Slot, w.Partition, err)
				case stats.Left > 0:
					x.done.Left++
				}
				if stats.Blobs == 0 { // another process was faster, or only the slot's list entry was left
					return nil
				}
				x.done.Slots++
				x.done.Samples += stats.Samples
				x.done.Repaired += min(1, stats.Repaired)
				return nil
			},
		)
		if err != nil {
			return err
		}
	}
	if err := x.advance(len(p.Slots)); err != nil {
		return err
	}
	for _, w := range p.Windows {
		err := x.step(fmt.Sprintf("rolling up the window until %s of tenant %q",
			shortTime(w.EndMS), w.Tenant), w.Seals, func() error {
			series, err := x.store.RollUp(x.ctx, w, func() {})
			if err != nil {
				return fmt.Errorf("rolling up the window until %s of tenant %q: %w", shortTime(w.EndMS), w.Tenant, err)
			}
			x.done.Windows++
			x.done.Series += series
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := x.compact(p); err != nil {
		return err
	}
	return x.count(p)
}

// compact creates long chunks in all past windows that overlap the range of the plan. It lists the windows again,
// because sealing and rolling up may have made more of them ready.
func (x *run) compact(p *Plan) error {
	list, err := p.Range.within(x.store.Compactable(x.ctx, func() {}))
	if err != nil {
		return err
	}
	x.done.All += len(list) - len(p.Compact)
	for _, c := range list {
		err := x.step(fmt.Sprintf("compacting the %s rollups until %s of tenant %q",
			c.Resolution, shortTime(c.EndMS), c.Tenant), 1, func() error {
			stats, err := x.store.Compact(x.ctx, c, func() {})
			if err != nil {
				return fmt.Errorf("compacting the %s rollups until %s of tenant %q: %w",
					c.Resolution, shortTime(c.EndMS), c.Tenant, err)
			}
			x.done.Compacted++
			x.done.Chunks += stats.Chunks
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// count counts the series of all past windows that overlap the range of the plan. It runs after the plan's last write
// to these windows. If the clock of this process is untrusted, it leaves the work to other processes, because outdated
// counts must not be deleted then.
func (x *run) count(p *Plan) error {
	list, err := p.Range.within(x.store.Counts().Uncounted(x.ctx, func() {}))
	if err != nil {
		return err
	}
	x.done.All += len(list) - len(p.Count)
	for _, c := range list {
		err := x.step(fmt.Sprintf("counting the series of the window until %s of tenant %q",
			shortTime(c.EndMS), c.Tenant), 1, func() error {
			_, err := x.store.Counts().CountWindow(x.ctx, c, func() {})
			switch {
			case errors.Is(err, membership.ErrClock):
				return nil
			case err != nil:
				return fmt.Errorf("counting the series of the window until %s of tenant %q: %w",
					shortTime(c.EndMS), c.Tenant, err)
			}
			x.done.Counted++
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// step calls tell and then f, and counts the given number of steps as tried. It returns an error only if the run must
// stop: ctx has ended, the engine is closed, or maxFailures consecutive calls have failed.
func (x *run) step(what string, steps int, f func() error) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	x.done.Now = what
	x.tell(x.done)
	err := f()
	if x.ctx.Err() != nil {
		return x.ctx.Err()
	}
	x.done.Steps += steps
	if err == nil {
		x.inRow = 0
		return nil
	}
	x.done.Failed += steps
	x.first = cmp.Or(x.first, err)
	if x.inRow++; x.inRow == maxFailures || errors.Is(err, engine.ErrClosed) {
		return fmt.Errorf("%w: %w", errGaveUp, x.first)
	}
	return nil
}

// advance unlists sealed slots if any were sealed, and releases quiet series from the head.
func (x *run) advance(slots int) error {
	for i := range x.store.Partitions() {
		if slots == 0 {
			break
		}
		if err := x.store.UnlistSlots(x.ctx, i); err != nil {
			return fmt.Errorf("unlisting sealed slots of partition %d: %w", i, err)
		}
	}
	x.store.ReleaseSeries()
	return nil
}

func shortTime(ms int64) string { return instant(ms).Format("2006-01-02T15:04Z") }
