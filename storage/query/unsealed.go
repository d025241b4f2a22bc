package query

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// unsealedSeries is a series with unsealed samples. Its snapshot is created when the query starts; samples that are
// added later may also be visible.
type unsealedSeries struct {
	series *head.Series
	// unsealed is a snapshot of the samples. days are the days from which the query may read samples, see unsealedDays;
	// nil means all days.
	unsealed head.Snapshot
	days     []unsealedDay
}

// unsealedDay is the part (after, end] of a raw window in which a series has unsealed samples. class is the class in
// which these samples will be stored.
type unsealedDay struct {
	after, end int64
	class      int64
}

// ErrLateUnsealed warns that unsealed samples are missing from the result. These samples arrived too late for raw rows,
// and will be included in buckets once they are sealed.
var ErrLateUnsealed = errors.New(
	"storage: acknowledged samples are missing from the result until they are sealed: the raw data of their time " +
		"have expired; repeat the query in a minute",
)

// unsealedSamples appends the unsealed samples of a series between minT and maxT that aren't hidden, in any order. It
// may also append samples outside of this range.
func (r *request) unsealedSamples(o *unsealedSeries, minT, maxT int64, into *chunk.Samples) error {
	if o.days == nil {
		return o.unsealed.Read(minT, maxT, into)
	}
	for _, d := range o.days {
		for from, to := range r.gaps.RangesOutside(
			d.class, max(minT, d.after+1, r.hiddenUntil(d.class, rollup.Raw)+1), min(maxT, d.end),
		) {
			var all chunk.Samples
			if err := o.unsealed.Read(from, to, &all); err != nil {
				return err
			}
			all.Normalize()
			all.Clip(from, to)
			into.AppendAll(&all)
		}
	}
	return nil
}

// unsealedCharge is the number of bytes that an unsealed series is charged to the query's budget.
const unsealedCharge = 64

// unsealedBytes is the memory metered for an unsealed series that a query finds: its snapshot, counted three times
// because the list grows, and its part of the result.
const unsealedBytes = 192

// unsealedMetered is the number of unsealed series that are metered together.
const unsealedMetered = 256

// findUnsealed finds the unsealed series, at most limit series unless limit is 0. Their samples remain readable if they
// are sealed during the query.
func (r *request) findUnsealed(ctx context.Context, limit int) (list []unsealedSeries, err error) {
	byClass := r.minT <= r.maxHidden(rollup.Raw) || len(r.gaps) > 0 || r.classes != math.MaxUint64
	for series, unsealed := range r.env.Head.Select(ctx, r.tenant, r.matchers, r.minT, r.maxT, limit > 0) {
		var days []unsealedDay
		if byClass {
			if days, err = r.unsealedDays(ctx, series, &unsealed); err != nil {
				return nil, err
			}
			if len(days) == 0 {
				continue
			}
		}
		if err := r.budget.Charge(unsealedCharge); err != nil {
			return nil, err
		}
		if len(list)%unsealedMetered == 0 {
			if err := meter.Grow(ctx, unsealedMetered*unsealedBytes); err != nil {
				return nil, err
			}
		}
		if len(list) == cap(list) { // append would grow a long list by only a quarter each time.
			list = slices.Grow(list, len(list)+1)
		}
		list = append(list, unsealedSeries{series, unsealed, days})
		if len(list) == limit {
			break
		}
	}
	return list, ctx.Err()
}

// anyDay stands for all days. It is used if all series are in the default class.
var anyDay = []unsealedDay{{-format.MaxTime - 1, format.MaxTime, retention.DefaultClass}}

// unsealedDays returns the days in which a series has unsealed samples and is in a requested class.
func (r *request) unsealedDays(
	ctx context.Context, series *head.Series, unsealed *head.Snapshot,
) (days []unsealedDay, err error) {
	if len(r.hidden) == 1 {
		return anyDay, nil
	}
	for _, first := range slices.Collect(unsealed.MinTimes(r.minT, r.maxT)) {
		list, err := r.days.ListAt(ctx, first)
		if err != nil {
			return nil, err
		}
		window := r.env.Period.RawWindowAt(first)
		d := unsealedDay{r.env.Period.WindowStart(window), r.env.Period.WindowEnd(window), list.ClassOf(series)}
		if r.classes&(1<<d.class) != 0 && !slices.Contains(days, d) {
			days = append(days, d)
		}
	}
	return days, nil
}

// showUnexpired lowers the retention boundaries of raw samples, so that the query reads raw samples of slots whose
// rollups may be incomplete: rollups don't include unsealed samples, and a delete may not have been applied to the
// rollups. Each boundary is lowered to the start of the oldest slot with incomplete rollups, but not below the time
// from which all raw rows are kept. The buckets of other slots are still read from rollups.
func (r *request) showUnexpired(list []unsealedSeries) {
	show := func(h *retention.HiddenTimes, first int64) {
		h.At[rollup.Raw] = min(h.At[rollup.Raw], max(h.Missing, r.env.Period.SlotStart(r.env.Period.SlotOf(first))))
	}
	for i := range r.hidden {
		h := &r.hidden[i]
		for _, d := range r.deletes {
			if first := max(d.Start, h.Missing+1); first <= min(d.End, h.At[rollup.Raw]) {
				show(h, first)
			}
		}
	}
	for i := range list {
		for _, d := range list[i].days {
			if d.class >= int64(len(r.hidden)) {
				continue
			}
			h := &r.hidden[d.class]
			for range list[i].unsealed.MinTimes(max(r.minT, d.after+1), min(r.maxT, h.Missing, d.end)) {
				r.reportWarningOnce(ErrLateUnsealed)
				break
			}
			from, to := max(r.minT, h.Missing+1, d.after+1), min(r.maxT, h.At[rollup.Raw], d.end)
			if from > to {
				continue
			}
			for first := range list[i].unsealed.MinTimes(from, to) {
				show(h, first)
			}
		}
	}
}

// unsealedClasses returns the bits of the classes of unsealed series, limited to the bits in wanted.
func (r *request) unsealedClasses(ctx context.Context, wanted uint64) (bits uint64, err error) {
	for series, unsealed := range r.env.Head.Select(ctx, r.tenant, r.matchers, r.minT, r.maxT, true) {
		days, err := r.unsealedDays(ctx, series, &unsealed)
		if err != nil {
			return 0, err
		}
		for _, d := range days {
			bits |= 1 << d.class
		}
		if bits&wanted == wanted {
			break
		}
	}
	return bits & wanted, ctx.Err()
}
