package storage

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// HorizonChange is what a retention hides of a tenant's class at a resolution, or shows again.
type HorizonChange struct {
	Tenant, Class string
	Resolution    rollup.Resolution
	// Was and Is are the retention before, as far as it is stored, and now; 0: for ever.
	Was, Is time.Duration
	// Shown is true if it shows samples after From, up to To, and false if it hides them. From is zero where they are all up to To.
	Shown    bool
	From, To time.Time
	// Samples is about how many raw samples it hides; -1: not counted.
	Samples int64
	// Goes is when what it hides goes, if the retention stays so. Gone is up to when rows are gone for ever; zero: none is.
	Goes, Gone time.Time
}

// HorizonChanges returns the ranges that the retention which the store was opened with will hide, or show again. It changes
// nothing.
func (s *Store) HorizonChanges(ctx context.Context) (list []HorizonChange, err error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		t, err := s.horizonsOf(ctx, tenant)
		if err != nil {
			return nil, err
		}
		next := t.clone()
		s.aim(ctx, tenant, t, &next, func(_ *horizon, target int64) int64 { return target })
		next.Horizons = slices.DeleteFunc(next.Horizons, func(h horizon) bool {
			was := t.of(h.Class, h.Resolution)
			return was != nil && !changedHorizon(was, &h)
		})
		for _, c := range s.changes(ctx, tenant, &t.horizonRow, &next) {
			first, err := s.firstIn(ctx, tenant, &c)
			if err != nil {
				return nil, err
			}
			if !first.IsZero() {
				c.From = first
				list = append(list, c)
			}
		}
	}
	return list, nil
}

// firstIn returns when the first window begins that a change is about; zero if there is none.
func (s *Store) firstIn(ctx context.Context, tenant string, c *HorizonChange) (time.Time, error) {
	from := format.FirstWindow(c.Resolution)
	if after := latest(c.From, c.Gone); !after.IsZero() {
		from = s.period.WindowAt(c.Resolution, after.UnixMilli()+1)
	}
	windows, err := s.windowsOf(ctx, tenant, from, s.period.WindowAt(c.Resolution, c.To.UnixMilli()))
	if err != nil || len(windows) == 0 {
		return time.Time{}, err
	}
	return retention.Instant(s.startOf(windows[0])), nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// HiddenByLowering returns the ranges that are hidden because a retention was lowered, and not dropped. Samples aren't counted, and
// ranges without windows are left out.
func (s *Store) HiddenByLowering(ctx context.Context) (list []HorizonChange, err error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		t, err := s.horizonsOf(ctx, tenant)
		if err != nil {
			return nil, err
		}
		for i := range t.Horizons {
			for _, step := range t.Horizons[i].Steps {
				c, ok := s.hiddenIn(tenant, &t.Horizons[i], step)
				if !ok {
					continue
				}
				if c.From, err = s.firstIn(ctx, tenant, &c); err != nil {
					return nil, err
				}
				if !c.From.IsZero() {
					list = append(list, c)
				}
			}
		}
	}
	return list, nil
}

// hiddenIn returns the range that a step has hidden, if the retention was lowered then.
func (s *Store) hiddenIn(tenant string, h *horizon, step hidingStep) (c HorizonChange, ok bool) {
	if step.Was == nil || step.ToMS <= h.LackingMS {
		return c, false
	}
	return HorizonChange{
		Tenant: tenant, Class: s.retention.NameOf(h.Class), Resolution: h.Resolution, Samples: -1,
		Was: time.Duration(step.Was.KeptMS) * time.Millisecond, Is: time.Duration(h.KeptMS) * time.Millisecond,
		From: retention.Instant(step.Was.HiddenMS), To: retention.Instant(step.ToMS), Gone: retention.Instant(h.LackingMS),
		Goes: s.opts.Now().UTC().Add(retention.Grace - time.Duration(s.clock.SeenMS()-step.SeenMS)*time.Millisecond),
	}, true
}

// changes compares horizons, and leaves out what hides nothing.
func (s *Store) changes(ctx context.Context, tenant string, before, next *horizonRow) (list []HorizonChange) {
	for i := range next.Horizons {
		h := &next.Horizons[i]
		was := before.of(h.Class, h.Resolution)
		if was == nil {
			was = &horizon{HiddenMS: never, KeptMS: h.KeptMS} // How long it was kept isn't known.
		}
		if was.HiddenMS == h.HiddenMS {
			continue
		}
		c := HorizonChange{
			Tenant: tenant, Resolution: h.Resolution, Samples: -1, Shown: h.HiddenMS < was.HiddenMS,
			Was: time.Duration(was.KeptMS) * time.Millisecond, Is: time.Duration(h.KeptMS) * time.Millisecond,
			From: retention.Instant(min(was.HiddenMS, h.HiddenMS)), To: retention.Instant(max(was.HiddenMS, h.HiddenMS)), Gone: retention.Instant(h.LackingMS),
		}
		c.Class = s.retention.NameOf(h.Class)
		if !c.Shown {
			c.Goes = s.opts.Now().UTC().Add(retention.Grace)
			if since, ok := h.hiddenSince(h.HiddenMS); ok {
				c.Goes = c.Goes.Add(-time.Duration(s.clock.SeenMS()-since) * time.Millisecond)
			}
			if n, err := s.aboutSamples(ctx, tenant, h.Class, h.Resolution, was.HiddenMS, h.HiddenMS); err == nil {
				c.Samples = n
			}
			if c.Samples == 0 {
				continue // As at the first start with a retention, where nothing is that old.
			}
		}
		list = append(list, c)
	}
	return list
}

// maxToldChanges bounds what one Expire logs of changed retentions.
const maxToldChanges = 50

// tellChanged logs what a changed retention has hidden, or shown again, and which rows a higher one doesn't keep.
func (s *Store) tellChanged(ctx context.Context, tenant string, before, next *horizonRow, x *expiry) {
	var changed horizonRow
	for i := range next.Horizons {
		h := &next.Horizons[i]
		was := before.of(h.Class, h.Resolution)
		if was == nil {
			continue
		}
		s.tellRaised(tenant, was, h, x)
		if changedHorizon(was, h) {
			changed.Horizons = append(changed.Horizons, *h)
		}
	}
	if len(changed.Horizons) == 0 || x.told.Load() >= maxToldChanges {
		return
	}
	for _, c := range s.changes(ctx, tenant, before, &changed) {
		about := []any{"tenant", c.Tenant, "class", c.Class, "resolution", c.Resolution}
		if c.Was != c.Is { // Otherwise tellRaised logs it.
			about = append(about, "was", retention.InWords(c.Was))
		}
		about = append(about, "is", retention.InWords(c.Is))
		if c.Shown {
			x.tell(s, slog.LevelInfo, "a longer retention shows hidden samples again", append(about, "after", c.From, "until", c.To)...)
			continue
		}
		if c.Samples >= 0 {
			about = append(about, "samples (estimate)", c.Samples)
		}
		x.tell(s, slog.LevelWarn, "a shorter retention hides samples; they are deleted in a week. Until then, a server started with a longer retention shows them again",
			append(about, "after", c.From, "until", c.To, "deleted from", c.Goes)...)
	}
}

// changedHorizon reports whether a horizon hides more because its retention was lowered, or shows something again. Others go on by day and week,
// also one that was raised: what has passed since it was looked at last is hidden, as ever.
func changedHorizon(was, is *horizon) bool {
	return is.HiddenMS < was.HiddenMS || longerKept(was.KeptMS, is.KeptMS)
}

// tellRaised logs from when a longer retention counts in full, where rows expire by themselves.
func (s *Store) tellRaised(tenant string, was, h *horizon, x *expiry) {
	if !s.expiring || !longerKept(h.KeptMS, was.KeptMS) {
		return
	}
	window := s.period.WindowAt(h.Resolution, s.opts.Now().UnixMilli())
	for fixed := true; fixed; { // Those of later ones may be fixed ahead.
		window++
		_, fixed = s.expiries.get(expiryAt{tenant, sharedClass, window})
	}
	x.tell(s, slog.LevelInfo, "a longer retention applies to windows without rows: later ones, and older ones that an import creates; others expire as fixed with their first row",
		"tenant", tenant, "class", s.retention.NameOf(h.Class), "resolution", h.Resolution, "was", retention.InWords(time.Duration(was.KeptMS)*time.Millisecond),
		"is", retention.InWords(time.Duration(h.KeptMS)*time.Millisecond), "in full from", retention.Instant(s.startOf(window)))
}

// tell logs what has changed, up to a bound.
func (x *expiry) tell(s *Store, level slog.Level, msg string, args ...any) {
	switch n := x.told.Add(1); {
	case n <= maxToldChanges:
		s.opts.Logger.Log(s.background, level, msg, args...)
	case n == maxToldChanges+1:
		s.opts.Logger.Warn("the new retention has more effects than are logged; run cassia retention to list them")
	}
}

// maxCounted is how many chunks aboutSamples looks at.
const maxCounted = 10_000

// aboutSamples estimates how many raw samples there are of a class between two ends of windows: from the newest window,
// of which it counts the first chunks, by the number of metrics and of sealed slots. -1: it can't be estimated, as of rollups.
func (s *Store) aboutSamples(ctx context.Context, tenant string, class int64, res rollup.Resolution, from, to int64) (int64, error) {
	windows, err := s.windowsOf(ctx, tenant, s.period.WindowAt(res, from+1), s.period.WindowAt(res, to))
	if err != nil || len(windows) == 0 {
		return 0, err
	}
	if res != rollup.Raw {
		return -1, nil
	}
	newest := windows[len(windows)-1]
	samples, err := s.samplesIn(ctx, tenant, class, newest)
	if err != nil || samples == 0 {
		return -1, err
	}
	of, err := s.slotsSealed(ctx, tenant, newest)
	if err != nil || of == 0 {
		return -1, err
	}
	total := int64(0)
	const asked = 400 // of windows
	for _, w := range windows[max(0, len(windows)-asked):] {
		n, err := s.slotsSealed(ctx, tenant, w)
		if err != nil {
			return 0, err
		}
		total += n
	}
	total = total * int64(len(windows)) / int64(min(len(windows), asked))
	return int64(float64(samples) / float64(of) * float64(total)), nil
}

// slotsSealed counts the slots that are sealed of a window.
func (s *Store) slotsSealed(ctx context.Context, tenant string, window int64) (int64, error) {
	marks, err := s.marksIn(ctx, tenant, window)
	slots := map[int64]bool{}
	for m := range marks {
		slots[m.Slot] = true
	}
	return int64(len(slots)), err
}

// samplesIn is about how many raw samples there are of a class in a window.
func (s *Store) samplesIn(ctx context.Context, tenant string, class, window int64) (samples int64, err error) {
	metrics, err := s.metricsIn(ctx, tenant, window)
	if err != nil {
		return 0, err
	}
	shards, err := s.shardsIn(ctx, window, tenant)
	if err != nil {
		return 0, err
	}
	chunks := 0
	for i, metric := range metrics {
		for at := range format.Places(s.retention.Classes(), shards.of(metric)) {
			if at.Class() != class {
				continue
			}
			for row, err := range s.rows.ScanReadable(ctx, engine.Range{
				Table: engine.Raw, Partition: format.SeriesPartition(window, tenant, metric, at), From: engine.Key{engine.Int(format.KindChunk)}, To: engine.Key{engine.Int(format.KindChunk)},
			}, anyUnread) {
				if err != nil {
					return 0, fmt.Errorf("storage: counting samples of metric %q: %w", metric, err)
				}
				chunks++
				if c, err := format.ParseRawChunk(row.Value); err == nil && c.Data != nil {
					if info, err := chunk.Header(c.Data); err == nil {
						samples += int64(info.Count)
					}
				}
			}
		}
		if chunks >= maxCounted {
			return samples * int64(len(metrics)) / int64(i+1), nil
		}
	}
	return samples, nil
}
