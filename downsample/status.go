package downsample

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Status is the state of the work, as a process sees it: of partitions that belong to others it has the owner.
type Status struct {
	// Halted is why nothing is sealed at all; "": it is.
	Halted string `json:"halted,omitempty"`
	// Alarm: the lag is above LagLimitSeconds.
	Alarm           bool    `json:"alarm"`
	LagSeconds      float64 `json:"lag_seconds"`
	LagLimitSeconds float64 `json:"lag_limit_seconds"`
	// WaitingSlots have settled and aren't sealed, counted once a partition.
	WaitingSlots int `json:"waiting_slots"`
	// StuckPartitions are those whose work has failed in several rounds in a row.
	StuckPartitions []int `json:"stuck_partitions"`
	// Rounds and the others count since the process started.
	Rounds        int       `json:"rounds"`
	LastRound     time.Time `json:"last_round,omitzero"`
	SealedSlots   int       `json:"sealed_slots"`
	RepairedSlots int       `json:"repaired_slots"`
	// Doing is the piece of work under way, if there is one.
	Doing         string  `json:"doing,omitempty"`
	DoingSeconds  float64 `json:"doing_seconds,omitempty"`
	WorkedSeconds float64 `json:"worked_seconds"`
	RestedSeconds float64 `json:"rested_seconds"`
	// Share is for which share of the time it works, at most, while it doesn't lag.
	Share      float64           `json:"share"`
	Rollups    RollupStatus      `json:"rollups"`
	Compaction RestingStatus     `json:"compaction"`
	Counting   RestingStatus     `json:"counting"`
	Tasks      []TaskStatus      `json:"failing_chores"`
	Partitions []PartitionStatus `json:"partitions"`
}

// PartitionStatus is how the work of a partition stands.
type PartitionStatus struct {
	Partition int `json:"partition"`
	// Mine: the work is this process'. Where there are others, Owner names the process whose it is, and Since is
	// the time since when; "": none.
	Mine  bool      `json:"mine"`
	Owner string    `json:"owner,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// WaitingSlots have settled and aren't sealed; Oldest is that which has waited longest. Of a partition of
	// another process they aren't known, nor is what follows.
	WaitingSlots int         `json:"waiting_slots"`
	Oldest       *SlotStatus `json:"oldest,omitempty"`
	// DamagedSlots hold rows that no seal can read: cassia check names them.
	DamagedSlots int         `json:"damaged_slots,omitempty"`
	LastSealed   *SlotStatus `json:"last_sealed,omitempty"`
	// FailedRounds is in how many rounds in a row something failed; LastError may be older.
	FailedRounds int       `json:"failed_rounds"`
	LastError    string    `json:"last_error,omitempty"`
	LastErrorAt  time.Time `json:"last_error_at,omitzero"`
	// Do is the remedy, where FailedRounds have become several.
	Do string `json:"do,omitempty"`
}

// SlotStatus is a slot: At is when it was sealed, or since when it could have been.
type SlotStatus struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	At    time.Time `json:"at"`
}

// RollupStatus lists windows of raw samples that lack rollups.
type RollupStatus struct {
	// Listed is when the windows were listed last; zero: not yet.
	Listed time.Time `json:"listed,omitzero"`
	// Windows is how many are this process' to work off; First are some of them, the oldest first.
	Windows int            `json:"windows"`
	First   []WindowStatus `json:"first"`
}

// WindowStatus is a window of raw rows without rollups.
type WindowStatus struct {
	Tenant      string    `json:"tenant"`
	Start       time.Time `json:"start"`
	End         time.Time `json:"end"`
	Seals       int       `json:"seals"`
	Failures    int       `json:"failures"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// RestingStatus is which windows of rollups wait to be compacted, or of raw rows wait to have their series counted.
type RestingStatus struct {
	// Listed is when the windows were listed last; zero: not yet. Done is how many were worked on since the process started.
	Listed  time.Time       `json:"listed,omitzero"`
	Windows int             `json:"windows"`
	Done    int             `json:"done"`
	First   []RestingWindow `json:"first"` // some of them, the oldest first
}

// RestingWindow is such a window. RestsSince is since when nothing was written to it; Again is true if it was compacted, or counted, before.
type RestingWindow struct {
	Tenant      string    `json:"tenant"`
	Resolution  string    `json:"resolution"`
	Start       time.Time `json:"start"`
	End         time.Time `json:"end"`
	Again       bool      `json:"again"`
	RestsSince  time.Time `json:"rests_since,omitzero"`
	Failures    int       `json:"failures"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// TaskStatus is something beside sealing that fails.
type TaskStatus struct {
	Task        string    `json:"chore"`
	Failures    int       `json:"failures"`
	LastError   string    `json:"last_error"`
	LastErrorAt time.Time `json:"last_error_at"`
}

// shownWindows bounds RollupStatus.First.
const shownWindows = 20

// Status returns the state of the work. It may be called at any time; over a shared engine it reads the leases.
func (l *Loop) Status(ctx context.Context) Status {
	waiting, lag := l.behind()
	doing, took := l.pacer.under()
	worked, rested := l.pacer.spent()
	s := Status{
		Alarm: lag > alarmLag, LagSeconds: lag.Seconds(), LagLimitSeconds: alarmLag.Seconds(), WaitingSlots: waiting,
		StuckPartitions: append([]int{}, l.progress.stuck()...), Doing: doing, DoingSeconds: took.Seconds(),
		WorkedSeconds: worked.Seconds(), RestedSeconds: rested.Seconds(), Share: l.opts.Share,
		Rollups: l.backlog.status(l.owns), Compaction: l.compactions.status(), Counting: l.uncounted.status(),
	}
	l.progress.status(&s)
	for p := range s.Partitions {
		s.Partitions[p].Mine = l.owns(p)
	}
	if l.opts.Shared {
		l.owners(ctx, &s)
	}
	return s
}

// owners fills in who owns the partitions.
func (l *Loop) owners(ctx context.Context, s *Status) {
	leases, err := l.store.Member().Leases(ctx, l.store.Partitions())
	if err != nil {
		s.Tasks = append(s.Tasks, TaskStatus{Task: "reading the leases", Failures: 1, LastError: err.Error(), LastErrorAt: l.opts.Now().UTC()})
		return
	}
	for p := range min(len(leases), len(s.Partitions)) {
		if leases[p].Owner == "" {
			continue
		}
		s.Partitions[p].Owner, s.Partitions[p].Since = leases[p].Name, instant(leases[p].SinceMS)
		if s.Partitions[p].Owner == "" {
			s.Partitions[p].Owner = leases[p].Owner // It has no name for people.
		}
	}
}

func (p *progress) status(s *Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halted != nil {
		s.Halted = p.halted.Error() + "; " + doRestart
	}
	s.Rounds, s.LastRound, s.SealedSlots, s.RepairedSlots = p.rounds, utc(p.lastRound), p.sealed, p.repaired
	s.Tasks = []TaskStatus{}
	for _, name := range slices.Sorted(maps.Keys(p.tasks)) {
		if c := p.tasks[name]; c.failures > 0 {
			s.Tasks = append(s.Tasks, TaskStatus{name, c.failures, c.err.Error(), utc(c.at)})
		}
	}
	for i := range p.partitions {
		x := &p.partitions[i]
		out := PartitionStatus{Partition: i, WaitingSlots: len(x.waiting), DamagedSlots: len(x.left), FailedRounds: x.failures}
		if len(x.waiting) > 0 {
			w := x.waiting[0]
			out.Oldest = &SlotStatus{instant(w.StartMS), instant(w.EndMS), instant(w.SinceMS)}
		}
		if !x.last.at.IsZero() {
			out.LastSealed = &SlotStatus{instant(x.last.startMS), instant(x.last.endMS), utc(x.last.at)}
		}
		if x.err != nil {
			out.LastError, out.LastErrorAt = x.err.Error(), utc(x.at)
		}
		if x.failures >= stuckRounds {
			out.Do = doStuck
		}
		s.Partitions = append(s.Partitions, out)
	}
}

func (b *backlog) status(owns func(int) bool) RollupStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := RollupStatus{Listed: utc(b.listed), Windows: b.countOf(owns), First: []WindowStatus{}}
	for _, u := range b.list {
		if len(s.First) == shownWindows {
			break
		}
		if !owns(u.partition) {
			continue
		}
		w := WindowStatus{Tenant: u.Tenant, Start: instant(u.StartMS), End: instant(u.EndMS), Seals: u.Seals, Failures: u.failures}
		if u.err != nil {
			w.LastError, w.LastErrorAt = u.err.Error(), utc(u.at)
		}
		s.First = append(s.First, w)
	}
	return s
}

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// utc leaves no trace of the machine's clock and zone; zero stays zero.
func utc(t time.Time) time.Time { return t.Round(0).UTC() }
