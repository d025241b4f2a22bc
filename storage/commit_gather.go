package storage

import "time"

// mostPatience bounds how long a commit waits for more requests.
const mostPatience = 20 * time.Millisecond

// gathering has a commit wait for the requests of senders that were there a moment ago, where every commit costs much: over a shared
// engine, a row for each partition, whatever is in it. Without it two groups of senders take turns: what one group sends waits while
// the other's commit is under way.
//
//	commit: 1 2 ─────►│ answered; 3 4 came meanwhile    without: 3 4 ─────► 1 2 ─────► 3 4 ─────►
//	                  └ expected: 1 2 3 4               with:    (1 2 come) 1 2 3 4 ─────►
//
// It waits no longer than the last commit took: so long a request would have waited that came just after a commit had begun. A sender
// that is alone isn't waited for, nor who has stopped sending, but once.
type gathering struct {
	// expected is how many requests the last commit had, and waited when it ended; patience is for how long the next one waits for as many.
	expected int
	patience time.Duration
}

// learn takes note of a commit of so many requests, when so many others wait.
func (g *gathering) learn(requests, waiting int, took time.Duration) {
	g.expected, g.patience = requests+waiting, min(took, mostPatience)
}

// gather waits until as many requests are there as are expected, or enough for one commit. mu is held.
func (c *committer) gather() {
	over := false
	enough := func() bool {
		return over || c.closed || len(c.queue) >= c.gathering.expected || c.queued >= groupBytes/2
	}
	if enough() {
		return
	}
	timer := time.AfterFunc(c.gathering.patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		over = true
		c.wake.Signal()
	})
	defer timer.Stop()
	for !enough() {
		c.wake.Wait()
	}
}
