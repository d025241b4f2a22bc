package downsample

import (
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage"
)

const (
	// stuckRounds is the number of consecutive rounds with failures after which a partition is reported.
	stuckRounds = 5
	// alarmLag is the lag that raises an alarm: half of the time within which a slot must be sealed after its samples
	// were ingested.
	alarmLag = storage.Grace / 2
)

// progress is the state of the work by partition.
type progress struct {
	mu         sync.Mutex
	partitions []partition // see partitionOf
	rounds     int
	lastRound  time.Time
	sealed     int // slots, counted once per partition
	repaired   int
	halted     error // why rounds don't run
	// tasks are the tasks other than sealing, by name.
	tasks map[string]*streak
}

// streak counts consecutive failures.
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

// keepFirst returns the first windows of a list. It keeps two groups, each limited to the number most: windows that
// haven't failed and windows that have. So failing windows don't displace other windows.
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

// partition is the state of the work of an owned partition.
type partition struct {
	// waiting are the slots to seal, the longest-waiting first.
	waiting []storage.Staged
	// left are the slots in which a seal found only unreadable rows, which stay in the staging log.
	left   map[int64]bool
	last   sealed
	streak // of rounds in which something failed
	// failed is the error of the current round.
	failed error
}

// sealed is the last sealed slot.
type sealed struct {
	startMS, endMS int64
	at             time.Time
}

// partitionOf returns the state of a partition. It adds the partition if it is new, because a new period may have more
// partitions. The caller must hold the lock.
func (p *progress) partitionOf(at int) *partition {
	for len(p.partitions) <= at {
		p.partitions = append(p.partitions, partition{})
	}
	return &p.partitions[at]
}

// set replaces the waiting slots of a partition. list must be empty if this process doesn't own the partition.
func (p *progress) set(at int, list []storage.Staged) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.partitionOf(at)
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

// forget removes the state of a partition that this process no longer owns, except its last sealed slot.
func (p *progress) forget(at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.partitionOf(at)
	*x = partition{last: x.last}
}

// recordSealed records that a slot was sealed.
func (p *progress) recordSealed(w *storage.Staged, stats storage.SealStats, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.partitionOf(w.Partition)
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

// recordFailure records a failure in a partition.
func (p *progress) recordFailure(at int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partitionOf(at).failed = err
}

// recordTask records the result of a task other than sealing. It reports whether the error should be logged.
func (p *progress) recordTask(name string, err error, now time.Time) (tell bool) {
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

// endRound updates the counts of consecutive failed rounds. whole is set if all waiting slots were tried. It returns
// the partitions whose failures should be logged.
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

// isLoggedAt reports whether a failure is logged after this number of consecutive failures: 5, 50, 500, 1,000, 1,500
// and so on.
func isLoggedAt(failures int) bool {
	return failures == stuckRounds || failures == 10*stuckRounds || failures > 0 && failures%(100*stuckRounds) == 0
}

// stuck returns the partitions whose work failed in multiple consecutive rounds.
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

// oldest returns the partition with the longest-waiting slot, and its last error.
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

// behind returns the number of waiting slots, and the lag of the oldest, which is the time since it could have been
// sealed. While the clock is untrusted, the caller passes the earlier of the two clocks' times as now, because the jump
// of a clock must not count as lag.
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

// streakOf returns the number of consecutive rounds with failures in a partition, and the last error.
func (p *progress) streakOf(at int) (failures int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.partitions[at].failures, p.partitions[at].err
}

// halt records the reason why rounds don't run. The method why returns it.
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
