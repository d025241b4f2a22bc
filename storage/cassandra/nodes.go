package cassandra

import (
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// nodes is gocql's round-robin policy within one data center. It also tracks which nodes are up, and logs changes.
type nodes struct {
	gocql.HostSelectionPolicy
	log *slog.Logger

	mu          sync.Mutex
	up          map[string]bool // by host ID: every node that is or was in the ring
	quiet       bool            // set while the session is opened and closed
	noNodeSince time.Time       // the time since which no node is up
}

func newNodes(dc string, log *slog.Logger) *nodes {
	return &nodes{HostSelectionPolicy: gocql.DCAwareRoundRobinPolicy(dc), log: log, up: map[string]bool{}, quiet: true}
}

// setQuiet disables or enables the logging of changes.
func (n *nodes) setQuiet(quiet bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.quiet = quiet
}

func (n *nodes) HostUp(h *gocql.HostInfo) {
	n.HostSelectionPolicy.HostUp(h)
	if n.set(h, true) {
		n.log.Info("a Cassandra node is up", "node", addressOf(h))
	}
}

func (n *nodes) HostDown(h *gocql.HostInfo) {
	n.HostSelectionPolicy.HostDown(h)
	if n.set(h, false) {
		n.log.Warn("a Cassandra node is down", "node", addressOf(h))
	}
}

func (n *nodes) RemoveHost(h *gocql.HostInfo) {
	n.HostSelectionPolicy.RemoveHost(h)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.up, h.HostID())
	n.updateNoNodeSince()
}

// updateNoNodeSince updates noNodeSince, the time since which no node is up. The caller must hold mu.
func (n *nodes) updateNoNodeSince() {
	for _, isUp := range n.up {
		if isUp {
			n.noNodeSince = time.Time{}
			return
		}
	}
	if n.noNodeSince.IsZero() {
		n.noNodeSince = time.Now()
	}
}

// noNodeFor returns the time since the last node went down. It returns 0 if a node is up or the state is unknown.
func (n *nodes) noNodeFor() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noNodeSince.IsZero() {
		return 0
	}
	return time.Since(n.noNodeSince)
}

// set records the state of a node, and reports whether the change is to be logged.
func (n *nodes) set(h *gocql.HostInfo, up bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.up[h.HostID()]
	n.up[h.HostID()] = up
	n.updateNoNodeSince()
	return !n.quiet && (!known || before != up)
}

// count returns the number of nodes that are up and down.
func (n *nodes) count() (up, down int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, isUp := range n.up {
		if isUp {
			up++
		} else {
			down++
		}
	}
	return up, down
}

// isUp reports whether a node is known to be up.
func (n *nodes) isUp(hostID string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up[hostID]
}

func addressOf(h *gocql.HostInfo) string {
	return net.JoinHostPort(h.ConnectAddress().String(), strconv.Itoa(h.Port()))
}
