package storage

import "time"

// maxGatherWait is the maximum time that a commit waits for more requests.
const maxGatherWait = 20 * time.Millisecond

// gathering makes a commit wait for the senders of the previous commit. It is used on a shared engine, where each
// commit writes a row per partition regardless of its size. Without it, two groups of senders alternate: the requests
// of one group wait during the commit of the other.
//
//	commit: 1 2 ─────►│ acknowledged; 3 4 queued      without: 3 4 ─────► 1 2 ─────► 3 4 ─────►
//	                  └ expected: 1 2 3 4             with:    (1 2 arrive) 1 2 3 4 ─────►
//
// The wait is at most the duration of the last commit, which is how long a request waits that arrives just after a
// commit has started. With one active sender there is no wait. A sender that has stopped causes at most one wait.
type gathering struct {
	// expected is the number of requests in the last commit plus the number queued when it ended. patience is the
	// longest time that the next commit waits for expected requests.
	expected int
	patience time.Duration
}

// record records the number of requests in a commit, the number queued when it ended, and its duration.
func (g *gathering) record(requests, waiting int, took time.Duration) {
	g.expected, g.patience = requests+waiting, min(took, maxGatherWait)
}

// waitForRequests waits until the queue has the expected number of requests, or enough bytes for one commit. The caller
// must hold mu.
func (c *committer) waitForRequests() {
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
