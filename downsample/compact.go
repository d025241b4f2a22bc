package downsample

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/panics"
)

// compact compacts past windows of rollups, the oldest first. It stops when no window is ready, or when the next round
// is due.
func (l *Loop) compact(ctx context.Context, began time.Time) {
	if !l.store.Compacts() || l.owned() == 0 {
		return
	}
	l.listResting(ctx, &l.compactions, "listing windows to compact", 0, l.store.Compactable)
	if _, due := l.backlog.pick(l.opts.Now(), l.owns); due { // rollups are still to be added to such windows
		return
	}
	for ctx.Err() == nil && l.opts.Now().Sub(began) < l.opts.Interval {
		c, ok := l.compactions.pick(l.opts.Now())
		if !ok {
			return
		}
		what := fmt.Sprintf("compacting the %s rollups until %s", c.Resolution, shortTime(c.EndMS))
		l.worker.work(ctx, what, l.lag, func(pause func()) { l.compactOne(ctx, c, pause) })
	}
}

// listResting lists the waiting windows if a listing is due. seq yields the windows. Its parameter is a function that
// rests, which seq calls between windows.
func (l *Loop) listResting(ctx context.Context, into *restingWindows, what string, interval time.Duration, seq func(context.Context, func()) iter.Seq2[ended.OverWindow, error]) {
	if !into.due(l.opts.Now(), interval) {
		return
	}
	l.worker.work(ctx, what, l.lag, func(pause func()) {
		l.recordTask(ctx, what, into.set(seq(ctx, every(pause)), l.opts.Now))
	})
}

// restEvery is the number of windows after which a listing rests. A single window takes about a microsecond, which is
// too short for a rest.
const restEvery = 64

// every returns a function that calls pause on every restEvery-th call.
func every(pause func()) func() {
	n := 0
	return func() {
		if n++; n%restEvery == 0 {
			pause()
		}
	}
}

func (l *Loop) compactOne(ctx context.Context, c *restingWindow, pause func()) {
	err := panics.Call("compacting rollups", func() error { return l.compactWindow(ctx, c, pause) })
	if ctx.Err() != nil {
		return
	}
	l.compactions.finish(c, err, l.opts.Now())
	l.recordTask(ctx, "compacting rollups", err)
}

func (l *Loop) compactWindow(ctx context.Context, c *restingWindow, pause func()) error {
	stats, err := l.store.Compact(ctx, c.OverWindow, pause)
	if err != nil {
		return err
	}
	l.metrics.compacted.Inc()
	if stats.Chunks > 0 || stats.Left > 0 {
		l.opts.Logger.Info("compacted rollups", "tenant", c.Tenant, "resolution", c.Resolution, "until", instant(c.EndMS), "series", stats.Series,
			"chunks", stats.Chunks, "left", stats.Left)
	}
	return nil
}
