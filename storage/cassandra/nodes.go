package cassandra

import (
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// nodes is gocql's round-robin within one data center, which also tracks which nodes are up, and logs when that changes.
type nodes struct {
	gocql.HostSelectionPolicy
	log *slog.Logger

	mu    sync.Mutex
	up    map[string]bool // by host ID: every node that is or was in the ring
	quiet bool            // while the session opens and closes
	dark  time.Time       // since when none is up
}

func newNodes(dc string, log *slog.Logger) *nodes {
	return &nodes{HostSelectionPolicy: gocql.DCAwareRoundRobinPolicy(dc), log: log, up: map[string]bool{}, quiet: true}
}

// setQuiet sets whether changes of nodes aren't logged.
func (n *nodes) setQuiet(quiet bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.quiet = quiet
}

// HostUp implements gocql.HostSelectionPolicy.
func (n *nodes) HostUp(h *gocql.HostInfo) {
	n.HostSelectionPolicy.HostUp(h)
	if n.set(h, true) {
		n.log.Info("a Cassandra node is up", "node", addressOf(h))
	}
}

// HostDown implements gocql.HostSelectionPolicy.
func (n *nodes) HostDown(h *gocql.HostInfo) {
	n.HostSelectionPolicy.HostDown(h)
	if n.set(h, false) {
		n.log.Warn("a Cassandra node is down", "node", addressOf(h))
	}
}

// RemoveHost implements gocql.HostSelectionPolicy.
func (n *nodes) RemoveHost(h *gocql.HostInfo) {
	n.HostSelectionPolicy.RemoveHost(h)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.up, h.HostID())
	n.darken()
}

// darken notes since when no node is up. The caller holds mu.
func (n *nodes) darken() {
	for _, isUp := range n.up {
		if isUp {
			n.dark = time.Time{}
			return
		}
	}
	if n.dark.IsZero() {
		n.dark = time.Now()
	}
}

// darkFor returns for how long no node has been up; 0: one is, or it isn't known yet.
func (n *nodes) darkFor() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dark.IsZero() {
		return 0
	}
	return time.Since(n.dark)
}

// set reports whether the change is to be logged.
func (n *nodes) set(h *gocql.HostInfo, up bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.up[h.HostID()]
	n.up[h.HostID()] = up
	n.darken()
	return !n.quiet && (!known || before != up)
}

// count returns how many nodes are up and how many down.
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
