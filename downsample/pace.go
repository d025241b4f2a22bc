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

// rest says how long to rest after work that took so long, while the oldest waiting work has such a lag.
//
//	share of the time
//	0.9  ┤          ╭──────
//	     │        ╱
//	Share┼──────╯
//	     └──────┬───┬───── lag
//	            1h  4h
//
// Sealing and rolling up take less than taking the same samples does, so that half a core catches up with what
// one takes; where that is not so the lag grows, and the share with it.
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

// pacer does pieces of work with rests between, and knows what is being done.
type pacer struct {
	now   func() time.Time
	share float64
	owed  time.Duration // of rest; only one goroutine works at a time

	mu             sync.Mutex
	doing          string
	since          time.Time // zero: it doesn't work
	worked, rested time.Duration
}

// work does a piece of work, and then rests. lag is asked for after the work.
func (p *pacer) work(ctx context.Context, what string, lag func() time.Duration, f func()) {
	began := p.now()
	p.mu.Lock()
	p.doing, p.since = what, began
	p.mu.Unlock()
	f()
	took := max(0, p.now().Sub(began))
	p.mu.Lock()
	p.doing, p.since = "", time.Time{}
	p.worked += took
	p.mu.Unlock()

	p.owed += rest(took, lag(), p.share)
	if p.owed < leastRest || ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(min(p.owed, maxRest))
	defer timer.Stop()
	p.owed = 0
	began = p.now()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rested += max(0, p.now().Sub(began))
}

// under returns what is being done, and for how long; "": nothing.
func (p *pacer) under() (what string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return "", 0
	}
	return p.doing, max(0, p.now().Sub(p.since))
}

// spent returns the time worked and rested in all.
func (p *pacer) spent() (worked, rested time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worked, p.rested
}
