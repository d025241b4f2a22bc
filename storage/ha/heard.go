package ha

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/membership"
)

// heardReplicas describes the requests of a cluster's replicas to this process. It is safe for concurrent use.
type heardReplicas struct {
	mu       sync.Mutex
	replicas map[string]*heardReplica
}

func newHeardReplicas() *heardReplicas { return &heardReplicas{replicas: map[string]*heardReplica{}} }

// heardReplica describes a replica's requests: the time of the last one, and the fronts of the acknowledged ones, stored
// or held, in milliseconds.
type heardReplica struct {
	at time.Time
	// front is the min of the fronts of recent requests: all since begun, and those of the period before, whose min is
	// earlier. A request of which most samples are ahead of the others must not count, nor fronts from before the
	// replica's clock was set back.
	front, earlier int64
	begun          time.Time
}

// record records a request. It returns false if that would exceed maxReplicas. It doesn't retain replica.
func (h *heardReplicas) record(replica string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	heard := h.replicas[replica]
	if heard == nil && len(h.replicas) >= maxReplicas {
		for name, other := range h.replicas {
			if membership.Elapsed(other.at, now) > forgetReplicaAfter {
				delete(h.replicas, name)
			}
		}
		if len(h.replicas) >= maxReplicas {
			return false
		}
	}
	if heard == nil {
		heard = &heardReplica{}
		h.replicas[strings.Clone(replica)] = heard
	}
	heard.at = now
	return true
}

// setFront records the front of an acknowledged request of a replica. It ignores math.MinInt64. Fronts count for one to
// two periods.
func (h *heardReplicas) setFront(replica string, front int64, now time.Time, period time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	heard := h.replicas[replica]
	switch {
	case heard == nil || front == math.MinInt64:
		return
	case heard.begun.IsZero() || membership.Elapsed(heard.begun, now) > 2*period:
		heard.earlier, heard.front, heard.begun = math.MaxInt64, front, now
	case membership.Elapsed(heard.begun, now) > period:
		heard.earlier, heard.front, heard.begun = heard.front, front, now
	default:
		heard.front = min(heard.front, front)
	}
}

// recentFront returns the min front of recent requests, or math.MinInt64 if there were none.
func (r heardReplica) recentFront() int64 {
	if r.begun.IsZero() {
		return math.MinInt64
	}
	return min(r.front, r.earlier)
}

// of returns the requests of a replica. Without requests, the time is zero.
func (h *heardReplicas) of(replica string) heardReplica {
	h.mu.Lock()
	defer h.mu.Unlock()
	if heard := h.replicas[replica]; heard != nil {
		return *heard
	}
	return heardReplica{}
}

// anyAfter reports whether there was a request after a time.
func (h *heardReplicas) anyAfter(since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, heard := range h.replicas {
		if heard.at.After(since) {
			return true
		}
	}
	return false
}

// list returns the times of the last requests, in any order.
func (h *heardReplicas) list() (all []ReplicaHeard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for replica, heard := range h.replicas {
		all = append(all, ReplicaHeard{replica, heard.at.UTC()})
	}
	return all
}
