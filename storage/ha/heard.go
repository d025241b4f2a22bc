package ha

import (
	"math"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/membership"
)

// heardReplicas describes the requests of a cluster's replicas to this process. It is safe for concurrent use.
type heardReplicas struct {
	mu       sync.Mutex
	replicas map[string]heardReplica
}

// heardReplica holds the time of the last request of a replica, and the front of the last acknowledged one, stored or
// held, in milliseconds. It isn't the max of all fronts, because the replica's clock may have been set back.
type heardReplica struct {
	at    time.Time
	front int64
}

// record records a request. It returns false if that would exceed maxReplicas.
func (h *heardReplicas) record(replica string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	heard, ok := h.replicas[replica]
	if !ok && len(h.replicas) >= maxReplicas {
		for name, other := range h.replicas {
			if membership.Elapsed(other.at, now) > forgetReplicaAfter {
				delete(h.replicas, name)
			}
		}
		if len(h.replicas) >= maxReplicas {
			return false
		}
	}
	if !ok {
		replica, heard.front = string([]byte(replica)), math.MinInt64
	}
	heard.at = now
	h.replicas[replica] = heard
	return true
}

// setFront records the front of an acknowledged request of a replica. It ignores math.MinInt64.
func (h *heardReplicas) setFront(replica string, front int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if heard, ok := h.replicas[replica]; ok && front != math.MinInt64 {
		heard.front = front
		h.replicas[replica] = heard
	}
}

// of returns the requests of a replica. Without requests, the time is zero, and the front is math.MinInt64.
func (h *heardReplicas) of(replica string) heardReplica {
	h.mu.Lock()
	defer h.mu.Unlock()
	if heard, ok := h.replicas[replica]; ok {
		return heard
	}
	return heardReplica{front: math.MinInt64}
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
