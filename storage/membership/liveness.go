package membership

import (
	"context"
	"time"
)

// LivenessTimeout is how long a process may not be heard of before others take its leases: several beats.
const LivenessTimeout = 10 * time.Second

// Liveness tracks which processes are alive: those whose beat was seen to change within LivenessTimeout, by this process' clock. No
// two clocks are compared. It is for one goroutine.
type Liveness struct {
	member *Member
	now    func() time.Time
	// at is when a process' beat was last seen to change.
	at map[string]seenBeat
}

type seenBeat struct {
	beat int64
	at   time.Time
}

// NewLiveness returns one that has heard of nobody yet.
func NewLiveness(member *Member, now func() time.Time) *Liveness {
	return &Liveness{member: member, now: now, at: map[string]seenBeat{}}
}

// Others lists the other processes that are heard of. One that is seen for the first time counts as alive.
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
