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

// openSeries is a series with unsealed samples, as it was when a query began. Later samples may show.
type openSeries struct {
	series *head.Series
	// unsealed are its samples, and days those of which a query may see them, see openDays; nil: it may see all.
	unsealed head.Snapshot
	days     []openDay
}

// openDay is a window of raw rows, after an instant and up to another, in which a series has unsealed samples, and the class in which they will be stored.
type openDay struct {
	after, end int64
	class      int64
}

// errLateUnsealed warns of unsealed samples of which there will be no raw rows: buckets have them once they are sealed.
var errLateUnsealed = errors.New("storage: acknowledged samples are missing from the result until they are sealed: the raw data of their time have expired; repeat the query in a minute")

// unsealedSamples appends a series' unsealed samples that may lie in [minT, maxT], in no particular order.
func (r *request) unsealedSamples(o *openSeries, minT, maxT int64, into *chunk.Samples) error {
	if o.days == nil {
		return o.unsealed.Read(minT, maxT, into)
	}
	for _, d := range o.days {
		for from, to := range r.gaps.Outside(d.class, max(minT, d.after+1, r.hiddenIn(d.class, rollup.Raw)+1), min(maxT, d.end)) {
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

// openCharge is what an unsealed series counts of the bytes that a query may read.
const openCharge = 64

// openBytes is metered for an unsealed series that a query finds: its snapshot, three times while the list grows, and its place in the answer.
const openBytes = 192

// openMetered is how many unsealed series are metered at once.
const openMetered = 256

// open finds the unsealed series, at most limit if that isn't 0. Samples sealed afterwards stay readable through them.
func (r *request) open(ctx context.Context, limit int) (list []openSeries, err error) {
	byClass := r.minT <= r.latest(rollup.Raw) || len(r.gaps) > 0 || r.classes != math.MaxUint64
	for series, unsealed := range r.env.Head.Select(ctx, r.tenant, r.matchers, r.minT, r.maxT, limit > 0) {
		var days []openDay
		if byClass {
			if days, err = r.openDays(ctx, series, &unsealed); err != nil {
				return nil, err
			}
			if len(days) == 0 {
				continue
			}
		}
		if err := r.budget.Charge(openCharge); err != nil {
			return nil, err
		}
		if len(list)%openMetered == 0 {
			if err := meter.Grow(ctx, openMetered*openBytes); err != nil {
				return nil, err
			}
		}
		if len(list) == cap(list) { // append would grow a long list by a quarter each time.
			list = slices.Grow(list, len(list)+1)
		}
		list = append(list, openSeries{series, unsealed, days})
		if len(list) == limit {
			break
		}
	}
	return list, ctx.Err()
}

// anyDay stands for all days, where all series are in the default class.
var anyDay = []openDay{{-format.MaxTime - 1, format.MaxTime, retention.DefaultClass}}

// openDays returns the days in which a series has unsealed samples, without those in which its class wasn't asked for.
func (r *request) openDays(ctx context.Context, series *head.Series, unsealed *head.Snapshot) (days []openDay, err error) {
	if len(r.hidden) == 1 {
		return anyDay, nil
	}
	for _, first := range slices.Collect(unsealed.First(r.minT, r.maxT)) {
		list, err := r.days.At(ctx, first)
		if err != nil {
			return nil, err
		}
		window := r.env.Period.RawWindowAt(first)
		d := openDay{r.env.Period.WindowStart(window), r.env.Period.WindowEnd(window), list.Of(series)}
		if r.classes&(1<<d.class) != 0 && !slices.Contains(days, d) {
			days = append(days, d)
		}
	}
	return days, nil
}

// showStanding lowers the horizons of raw samples, as far as all raw rows stand, to the beginning of the oldest slot whose rollups may not answer
// for it: they have unsealed samples only when these are sealed, and they may have been made without a delete. Other slots stay answered from rollups.
func (r *request) showStanding(list []openSeries) {
	show := func(h *retention.Hidden, first int64) {
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
			for range list[i].unsealed.First(max(r.minT, d.after+1), min(r.maxT, h.Missing, d.end)) {
				r.tellOnce(errLateUnsealed)
				break
			}
			from, to := max(r.minT, h.Missing+1, d.after+1), min(r.maxT, h.At[rollup.Raw], d.end)
			if from > to {
				continue
			}
			for first := range list[i].unsealed.First(from, to) {
				show(h, first)
			}
		}
	}
}

// openClasses returns the bits of the classes of the unsealed series, as far as wanted contains them.
func (r *request) openClasses(ctx context.Context, wanted uint64) (bits uint64, err error) {
	for series, unsealed := range r.env.Head.Select(ctx, r.tenant, r.matchers, r.minT, r.maxT, true) {
		days, err := r.openDays(ctx, series, &unsealed)
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
