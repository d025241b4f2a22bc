package downsample

import (
	"context"
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/panics"
)

// compact compacts windows of rollups that are over, the oldest first, until the next round is due.
func (l *Loop) compact(ctx context.Context, began time.Time) {
	if !l.store.Compacts() || l.owned() == 0 {
		return
	}
	l.worker.work(ctx, "listing windows to compact", l.lag, func(func()) {
		list, err := l.store.Compactable(ctx)
		l.task(ctx, "listing windows to compact", err)
		if err == nil {
			l.compactions.set(list, l.opts.Now())
		}
	})
	if _, due := l.backlog.pick(l.opts.Now(), l.owns); due { // It makes rollups of the same windows.
		return
	}
	for ctx.Err() == nil && l.opts.Now().Sub(began) < l.opts.Interval {
		c, ok := l.compactions.pick(l.opts.Now())
		if !ok {
			return
		}
		what := fmt.Sprintf("compacting the %s rollups until %s", c.Resolution, shortTime(c.EndMS))
		l.worker.work(ctx, what, l.lag, func(pause func()) { l.compactOne(ctx, &c, pause) })
	}
}

func (l *Loop) compactOne(ctx context.Context, c *restingWindow, pause func()) {
	err := panics.Do("compacting rollups", func() error { return l.compactWindow(ctx, c, pause) })
	if ctx.Err() != nil {
		return
	}
	l.compactions.done(c, err, l.opts.Now())
	l.task(ctx, "compacting rollups", err)
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
