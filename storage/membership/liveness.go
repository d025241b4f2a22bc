package membership

import (
	"context"
	"time"
)

// LivenessTimeout is the time without a heartbeat after which other processes take over the leases of a process. It is
// five heartbeat intervals.
const LivenessTimeout = 10 * time.Second

// Liveness lists the live processes: those from which this process has read a new heartbeat within LivenessTimeout,
// measured by its own clock. Clocks of different processes are never compared. Liveness isn't safe for concurrent use.
type Liveness struct {
	member *Member
	now    func() time.Time
	// at contains the last heartbeat of each process, and when this process first read it.
	at map[string]seenBeat
}

type seenBeat struct {
	beat int64
	at   time.Time
}

// NewLiveness returns a Liveness that has seen no process yet.
func NewLiveness(member *Member, now func() time.Time) *Liveness {
	return &Liveness{member: member, now: now, at: map[string]seenBeat{}}
}

// Others lists the other live processes. A process that is seen for the first time counts as alive.
func (h *Liveness) Others(ctx context.Context) (alive []Process, err error) {
	processes, err := h.member.Processes(ctx)
	if err != nil {
		return nil, err
	}
	now, there := h.now(), map[string]bool{}
	for _, p := range processes {
		there[p.Writer] = true
		if p.Writer == h.member.Writer() {
			continue
		}
		last, known := h.at[p.Writer]
		if !known || last.beat != p.Beat {
			last = seenBeat{beat: p.Beat, at: now}
			h.at[p.Writer] = last
		}
		if now.Sub(last.at) < LivenessTimeout {
			alive = append(alive, p)
		}
	}
	for w := range h.at {
		if !there[w] {
			delete(h.at, w)
		}
	}
	return alive, nil
}
