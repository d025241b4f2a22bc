package downsample

import (
	"context"
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/panics"
)

// countingPartition is the partition whose owner counts series, so that only one process counts.
const countingPartition = 0

// count counts the series of past windows of raw rows, the oldest first. It stops when no window is ready, or when the
// next round is due.
func (l *Loop) count(ctx context.Context, began time.Time) {
	if !l.owns(countingPartition) {
		l.uncounted.clear()
		return
	}
	// A listing is expensive: on a shared engine it reads the commit records of all windows.
	l.listResting(ctx, &l.uncounted, "listing windows whose series need counting",
		thoroughInterval, l.store.Counts().Uncounted)
	for ctx.Err() == nil && l.opts.Now().Sub(began) < l.opts.Interval {
		w, ok := l.uncounted.pick(l.opts.Now())
		if !ok {
			return
		}
		what := fmt.Sprintf("counting the series of the window until %s", shortTime(w.EndMS))
		l.worker.work(ctx, what, l.lag, func(pause func()) { l.countOne(ctx, w, pause) })
	}
}

func (l *Loop) countOne(ctx context.Context, w *restingWindow, pause func()) {
	series := int64(0)
	err := panics.Call("counting series",
		func() (err error) { series, err = l.store.Counts().CountWindow(ctx, w.OverWindow, pause); return err })
	if ctx.Err() != nil {
		return
	}
	l.uncounted.finish(w, err, l.opts.Now())
	l.recordTask(ctx, "counting series", err)
	if err == nil {
		l.metrics.counted.Inc()
		l.opts.Logger.Debug("counted series", "tenant", w.Tenant, "until", instant(w.EndMS), "series", series)
	}
}
