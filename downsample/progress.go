package downsample

import (
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage"
)

const (
	// stuckRounds is in how many rounds in a row a partition's work must fail until somebody should look.
	stuckRounds = 5
	// alarmLag is the lag that is an alarm: half of what there is between taking a sample and the end of the time
	// in which it can be sealed as it is.
	alarmLag = storage.Grace / 2
)

// progress is the state of the work, by partition.
type progress struct {
	mu         sync.Mutex
	partitions []partition // see of
	rounds     int
	lastRound  time.Time
	sealed     int // slots, counted once a partition
	repaired   int
	halted     error // why there are no rounds
	// tasks are those beside sealing, by name.
	tasks map[string]*streak
}

// streak is how often in a row something failed.
type streak struct {
	failures int
	err      error // the last one
	at       time.Time
}

func (s *streak) fail(err error, now time.Time) {
	s.failures++
	s.err, s.at = err, now
}

func (s *streak) hasFailed() bool { return s.failures > 0 }

// keepFirst returns the first windows of a list: up to most that haven't failed, and up to most that have, so that these keep no others out.
func keepFirst[W interface{ hasFailed() bool }](list []W, most int, compare func(a, b W) int) []W {
	if len(list) <= most {
		return list
	}
	slices.SortFunc(list, compare)
	failing, others := 0, 0
	return slices.DeleteFunc(list, func(w W) bool {
		n := &others
		if w.hasFailed() {
			n = &failing
		}
		*n++
		return *n > most
	})
}

// partition is the state of a partition's work, where it is this process'.
type partition struct {
	// waiting is what could be sealed and isn't, what has waited longest first.
	waiting []storage.Staged
	// left are slots that a seal went through, and found nothing in that can be sealed: damaged rows stay staged.
	left   map[int64]bool
	last   sealed
	streak // of rounds in which something failed
	// failed is what failed in this round.
	failed error
}

// sealed is a slot that was sealed last.
type sealed struct {
	startMS, endMS int64
	at             time.Time
}

// of returns the state of a partition. There are more of them once a period was added that has more. The lock is held.
func (p *progress) of(at int) *partition {
	for len(p.partitions) <= at {
		p.partitions = append(p.partitions, partition{})
	}
	return &p.partitions[at]
}

// set notes what waits in a partition, as it was just listed; nothing where the work isn't this process'.
func (p *progress) set(at int, list []storage.Staged) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of(at)
	left := map[int64]bool{}
	x.waiting = nil
	for _, w := range list {
		if x.left[w.Slot] {
			left[w.Slot] = true
		} else {
			x.waiting = append(x.waiting, w)
		}
	}
	x.left = left
}

// forget drops the state of a partition that isn't this process' any more.
func (p *progress) forget(at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of(at)
	*x = partition{last: x.last}
}

// done notes that a slot was sealed.
func (p *progress) done(w *storage.Staged, stats storage.SealStats, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of(w.Partition)
	x.waiting = slices.DeleteFunc(x.waiting, func(o storage.Staged) bool { return o.Slot == w.Slot })
	if stats.Blobs == 0 {
		if x.left == nil {
			x.left = map[int64]bool{}
		}
		x.left[w.Slot] = true
		return
	}
	delete(x.left, w.Slot)
	x.last = sealed{w.StartMS, w.EndMS, at}
	p.sealed++
	if stats.Repaired > 0 {
		p.repaired++
	}
}

// fail notes that something failed in a partition.
func (p *progress) fail(at int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(at).failed = err
}

// task notes how something went that is done beside sealing. It reports whether somebody should hear of it now.
func (p *progress) task(name string, err error, now time.Time) (tell bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.tasks[name]
	if c == nil {
		c = &streak{}
		p.tasks[name] = c
	}
	if err == nil {
		c.failures = 0
		return false
	}
	c.fail(err, now)
	return isLoggedAt(c.failures)
}

// endRound counts the rounds that failed. whole: all that waited was tried. It returns the partitions
// of which somebody should hear now.
func (p *progress) endRound(now time.Time, whole bool) (tell []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.partitions {
		x := &p.partitions[i]
		switch {
		case x.failed != nil:
			x.fail(x.failed, now)
			if isLoggedAt(x.failures) {
				tell = append(tell, i)
			}
		case whole:
			x.failures = 0
		}
		x.failed = nil
	}
	p.rounds++
	p.lastRound = now
	return tell
}

// isLoggedAt reports whether so many failures in a row are news: 5, 50, 500, 1,000, 1,500.
func isLoggedAt(failures int) bool {
	return failures == stuckRounds || failures == 10*stuckRounds || failures > 0 && failures%(100*stuckRounds) == 0
}

// stuck lists the partitions whose work failed in several rounds in a row.
func (p *progress) stuck() (list []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.partitions {
		if p.partitions[i].failures >= stuckRounds {
			list = append(list, i)
		}
	}
	return list
}

// oldest returns the partition with what has waited longest, and its last error.
func (p *progress) oldest() (at int, w storage.Staged, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.partitions {
		if list := p.partitions[i].waiting; len(list) > 0 && (w.SinceMS == 0 || list[0].SinceMS < w.SinceMS) {
			at, w, err = i, list[0], p.partitions[i].err
		}
	}
	return at, w, err
}

// behind returns how many slots wait, and for how long the oldest of them could have been sealed. While the clock is untrusted, now is the earlier
// of the two times: otherwise a leap would count as lag.
func (p *progress) behind(now time.Time) (waiting int, lag time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.partitions {
		list := p.partitions[i].waiting
		waiting += len(list)
		if len(list) > 0 {
			lag = max(lag, now.Sub(time.UnixMilli(list[0].SinceMS)))
		}
	}
	return waiting, lag
}

// streakOf returns in how many rounds in a row a partition's work has failed, and how.
func (p *progress) streakOf(at int) (failures int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.partitions[at].failures, p.partitions[at].err
}

// halt notes why there are no rounds; why returns it.
func (p *progress) halt(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halted = err
}

func (p *progress) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.halted
}
