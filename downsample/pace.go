package downsample

import (
	"context"
	"sync"
	"time"
)

const (
	// hurryFrom and hurryFull are the lag from which the loop rests less, and at which it rests least: it would
	// be behind by two slots of two hours.
	hurryFrom = time.Hour
	hurryFull = 4 * time.Hour
	// hurriedShare is the share of the time that it works then, unless more is allowed anyway: never all of it.
	hurriedShare = 0.9
	// maxRest bounds a rest after a piece of work that took very long: then it was the engine that was slow.
	maxRest = time.Minute
	// leastRest is what rests are saved up to, for timers are coarse.
	leastRest = 10 * time.Millisecond
)

// rest returns how long to rest after work that took so long, while the oldest waiting work has such a lag.
//
//	share of the time
//	0.9  ┤          ╭──────
//	     │        ╱
//	Share┼──────╯
//	     └──────┬───┬───── lag
//	            1h  4h
//
// Sealing and rolling up take less than taking the same samples does. Where they can't keep up the lag grows, and
// the share with it.
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

// pacer has workers that do pieces of work with rests between, and tracks their tasks.
type pacer struct {
	now   func() time.Time
	share float64

	mu             sync.Mutex
	workers        []*worker
	worked, rested time.Duration
}

// worker works, one piece at a time.
type worker struct {
	*pacer
	owed  time.Duration // of rest
	doing string        // with pacer.mu, as since
	since time.Time     // zero: it doesn't work
}

func newPacer(now func() time.Time, share float64, hands int) *pacer {
	p := &pacer{now: now, share: share}
	for range hands {
		p.workers = append(p.workers, &worker{pacer: p})
	}
	return p
}

// work does a piece of work, and then rests; f may pause to rest on the way. lag is asked for before each rest.
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

// end ends a piece, or a part of one, and rests.
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

// under returns which piece is under way, and for how long; of several, that which was begun first. "": none.
func (p *pacer) under() (what string, took time.Duration) {
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

// spent returns the time worked and rested in all.
func (p *pacer) spent() (worked, rested time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worked, p.rested
}
