package downsample

import (
	"context"
	"sync"
	"time"
)

const (
	// hurryFrom is the lag above which rests get shorter, and hurryFull the lag at which they are shortest: two slots
	// of two hours.
	hurryFrom = time.Hour
	hurryFull = 4 * time.Hour
	// hurriedShare is the fraction of the time during which a worker works at a lag of hurryFull, unless Share is
	// larger. It is less than 1, so that a lag alone never prevents rests.
	hurriedShare = 0.9
	// maxRest bounds the rest after a piece of work that took very long. Such work is long because the engine was slow,
	// not because there was much of it.
	maxRest = time.Minute
	// leastRest is the min duration of a rest, because timers are coarse. Shorter rests are accumulated.
	leastRest = 10 * time.Millisecond
)

// rest returns the duration of the rest after work of the given duration. lag is the lag of the oldest waiting work.
// The rest is at most maxRest, and 0 if share is 1.
//
//	share of the time
//	0.9  ┤          ╭──────
//	     │        ╱
//	Share┼──────╯
//	     └──────┬───┬───── lag
//	            1h  4h
//
// Sealing and rolling up samples costs less than ingesting them. If the loop can't keep up, the lag grows, and so does
// the share of the time during which the loop works.
func rest(worked, lag time.Duration, share float64) time.Duration {
	if share >= 1 || worked <= 0 {
		return 0
	}
	if lag > hurryFrom {
		hurry := min(1, float64(lag-hurryFrom)/float64(hurryFull-hurryFrom))
		share += max(0, hurriedShare-share) * hurry
	}
	return time.Duration(min(float64(worked)*(1/share-1), float64(maxRest)))
}

// pacer runs workers that rest between pieces of work, and tracks their current work.
type pacer struct {
	now   func() time.Time
	share float64

	mu             sync.Mutex
	workers        []*worker
	worked, rested time.Duration
}

// worker does one piece of work at a time.
type worker struct {
	*pacer
	owed  time.Duration // accumulated rest
	doing string        // guarded by pacer.mu
	since time.Time     // guarded by pacer.mu; zero: idle
}

func newPacer(now func() time.Time, share float64, hands int) *pacer {
	p := &pacer{now: now, share: share}
	for range hands {
		p.workers = append(p.workers, &worker{pacer: p})
	}
	return p
}

// work runs f, and then rests. f may call pause to rest between parts of the work. lag is called before each rest.
func (h *worker) work(ctx context.Context, what string, lag func() time.Duration, f func(pause func())) {
	h.begin(what)
	f(func() {
		h.end(ctx, lag)
		h.begin(what)
	})
	h.end(ctx, lag)
}

func (h *worker) begin(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doing, h.since = what, h.now()
}

// end records the end of a piece of work, or of a part of it, and rests.
func (h *worker) end(ctx context.Context, lag func() time.Duration) {
	h.mu.Lock()
	took := max(0, h.now().Sub(h.since))
	h.doing, h.since = "", time.Time{}
	h.worked += took
	h.mu.Unlock()

	h.owed += rest(took, lag(), h.share)
	if h.owed < leastRest || ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(min(h.owed, maxRest))
	defer timer.Stop()
	h.owed = 0
	began := h.now()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rested += max(0, h.now().Sub(began))
}

// longest returns the running piece of work that started first, and its duration so far. It returns "" if no work is
// running.
func (p *pacer) longest() (what string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for _, h := range p.workers {
		if !h.since.IsZero() && (what == "" || now.Sub(h.since) > took) {
			what, took = h.doing, max(0, now.Sub(h.since))
		}
	}
	return what, took
}

// spent returns the total time worked and rested.
func (p *pacer) spent() (worked, rested time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worked, p.rested
}
