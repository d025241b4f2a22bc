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

// Range is what a plan covers.
type Range struct {
	// MinMS and MaxMS bound the time, milliseconds: slots and windows that touch it are worked off whole.
	MinMS, MaxMS int64
	// Settle is how long after its end a slot waits for stragglers.
	Settle time.Duration
}

// Everything is the range of all times.
func Everything(settle time.Duration) Range {
	return Range{MinMS: -maxTime, MaxMS: maxTime, Settle: settle}
}

// Plan is what there is to do in a range, the oldest first. A step is a slot of a partition, to seal or to roll up.
//
//	NewPlan ──► Run: seal Slots ──► move the marks ──► roll up Windows ──► compact ──► count
//
// It may be run beside servers over the same engine, stopped at any moment, and made and run anew.
type Plan struct {
	Range   Range
	Slots   []storage.Staged
	Windows []storage.Unrolled
	// Compact are windows of rollups that are over, and whose chunks become long ones.
	Compact []ended.OverWindow
	// Count are windows of raw rows that are over, and whose series aren't counted.
	Count []ended.OverWindow
	// Expired are slots of which the raw window is past the retention that the store was opened with: the plan
	// leaves them to a server, for sealing them here keeps none of their samples if it keeps them longer.
	Expired []storage.Staged
}

// NewPlan lists what there is to do. It writes nothing.
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

// within returns the windows that touch the range, the oldest first.
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

// Steps is how many steps there are.
func (p *Plan) Steps() int {
	n := len(p.Slots) + len(p.Compact) + len(p.Count)
	for i := range p.Windows {
		n += p.Windows[i].Seals
	}
	return n
}

// Done is what a run has done so far.
type Done struct {
	// Steps are those that were tried, of all.
	Steps, All int
	// Now is the next step.
	Now string
	// Slots were sealed, with Samples, Repaired of them not for the first time; Left have rows that can't be read.
	Slots, Repaired, Left, Samples int
	// Windows got their rollups, Series were rolled up for it, each counted once a slot.
	Windows, Series int
	// Compacted are windows of rollups in which Chunks became parts of long ones.
	Compacted, Chunks int
	// Counted are windows of raw rows whose series were counted.
	Counted int
	// Failed steps may work when the plan is made anew.
	Failed int
}

// maxFailures is after how many failures in a row a run gives up: then it isn't a slot that is at fault.
const maxFailures = 5

// ErrGaveUp means that several steps in a row failed, so that the others weren't tried.
var ErrGaveUp = errors.New("downsample: gave up after repeated failures")

// Run carries out the plan, without a rest, and calls tell after each step. Steps that fail are left out; the error
// is that of the first of them, or the context's.
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

// run is a plan that is being done.
type run struct {
	ctx   context.Context
	store *storage.Store
	tell  func(Done)
	done  Done
	first error // of the first step that failed
	inRow int   // how many have failed one after the other
}

func (x *run) all(p *Plan) error {
	for i := range p.Slots {
		w := &p.Slots[i]
		err := x.step(fmt.Sprintf("sealing the slot until %s, partition %d", shortTime(w.EndMS), w.Partition), 1, func() error {
			stats, err := x.store.Seal(x.ctx, w.Work)
			switch {
			case err != nil:
				return fmt.Errorf("sealing slot %d of partition %d: %w", w.Slot, w.Partition, err)
			case stats.Left > 0:
				x.done.Left++
			}
			if stats.Blobs == 0 { // Or somebody else was faster, or only the note that something waits was left.
				return nil
			}
			x.done.Slots++
			x.done.Samples += stats.Samples
			x.done.Repaired += min(1, stats.Repaired)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := x.advance(len(p.Slots)); err != nil {
		return err
	}
	for _, w := range p.Windows {
		err := x.step(fmt.Sprintf("rolling up the window until %s of tenant %q", shortTime(w.EndMS), w.Tenant), w.Seals, func() error {
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

// compact makes long chunks in all windows that are over once the rest is done.
func (x *run) compact(p *Plan) error {
	list, err := p.Range.within(x.store.Compactable(x.ctx, func() {}))
	if err != nil {
		return err
	}
	x.done.All += len(list) - len(p.Compact)
	for _, c := range list {
		err := x.step(fmt.Sprintf("compacting the %s rollups until %s of tenant %q", c.Resolution, shortTime(c.EndMS), c.Tenant), 1, func() error {
			stats, err := x.store.Compact(x.ctx, c, func() {})
			if err != nil {
				return fmt.Errorf("compacting the %s rollups until %s of tenant %q: %w", c.Resolution, shortTime(c.EndMS), c.Tenant, err)
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

// count counts the series of all windows that are over once nothing more is written to them. A process whose clock isn't believed leaves
// that to others: it may not remove counts that are out of date.
func (x *run) count(p *Plan) error {
	list, err := p.Range.within(x.store.Counts().Uncounted(x.ctx, func() {}))
	if err != nil {
		return err
	}
	x.done.All += len(list) - len(p.Count)
	for _, c := range list {
		err := x.step(fmt.Sprintf("counting the series of the window until %s of tenant %q", shortTime(c.EndMS), c.Tenant), 1, func() error {
			_, err := x.store.Counts().CountWindow(x.ctx, c, func() {})
			switch {
			case errors.Is(err, membership.ErrClock):
				return nil
			case err != nil:
				return fmt.Errorf("counting the series of the window until %s of tenant %q: %w", shortTime(c.EndMS), c.Tenant, err)
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

// step does what counts as so many steps. Its error ends the run.
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
		return fmt.Errorf("%w: %w", ErrGaveUp, x.first)
	}
	return nil
}

// advance unlists sealed slots.
func (x *run) advance(slots int) error {
	for i := range x.store.Partitions() {
		if slots == 0 {
			break
		}
		if err := x.store.Unlist(x.ctx, i); err != nil {
			return fmt.Errorf("unlisting sealed slots of partition %d: %w", i, err)
		}
	}
	x.store.LetGo()
	return nil
}

func shortTime(ms int64) string { return instant(ms).Format("2006-01-02T15:04Z") }
