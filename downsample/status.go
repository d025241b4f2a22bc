package downsample

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/membership"
)

// Status is the state of the work as seen by one process. For partitions of other processes it contains only their
// owners.
type Status struct {
	// Halted is the reason why nothing is sealed; "" if sealing runs.
	Halted string `json:"halted,omitempty"`
	// Alarm is true if the lag is above LagLimitSeconds.
	Alarm           bool    `json:"alarm"`
	LagSeconds      float64 `json:"lag_seconds"`
	LagLimitSeconds float64 `json:"lag_limit_seconds"`
	// WaitingSlots counts slots that have settled and aren't sealed, once per partition.
	WaitingSlots int `json:"waiting_slots"`
	// StuckPartitions are the partitions whose work failed in multiple consecutive rounds.
	StuckPartitions []int `json:"stuck_partitions"`
	// Rounds and the following counters are counted since the process started.
	Rounds        int       `json:"rounds"`
	LastRound     time.Time `json:"last_round,omitzero"`
	SealedSlots   int       `json:"sealed_slots"`
	RepairedSlots int       `json:"repaired_slots"`
	// Doing is the running piece of work, if any.
	Doing         string  `json:"doing,omitempty"`
	DoingSeconds  float64 `json:"doing_seconds,omitempty"`
	WorkedSeconds float64 `json:"worked_seconds"`
	RestedSeconds float64 `json:"rested_seconds"`
	// Share is the max fraction of the time during which the loop works unless it lags.
	Share      float64       `json:"share"`
	Rollups    RollupStatus  `json:"rollups"`
	Compaction RestingStatus `json:"compaction"`
	Counting   RestingStatus `json:"counting"`
	Tasks      []TaskStatus  `json:"failing_chores"`
	// Imports are the imports of this process that are under way.
	Imports    []membership.ImportStatus `json:"imports"`
	Partitions []PartitionStatus         `json:"partitions"`
}

// PartitionStatus is the state of a partition's work.
type PartitionStatus struct {
	Partition int `json:"partition"`
	// Mine is true if this process does the work. If there are multiple processes, Owner is the name of the process
	// that does the work, or "" if there is none, and Since is the time at which it acquired the lease.
	Mine  bool      `json:"mine"`
	Owner string    `json:"owner,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// WaitingSlots counts slots that have settled and aren't sealed, and Oldest is the slot that has waited longest.
	// These and the following fields are unknown for partitions of other processes.
	WaitingSlots int         `json:"waiting_slots"`
	Oldest       *SlotStatus `json:"oldest,omitempty"`
	// DamagedSlots counts slots with unreadable rows, which cassia check lists.
	DamagedSlots int         `json:"damaged_slots,omitempty"`
	LastSealed   *SlotStatus `json:"last_sealed,omitempty"`
	// FailedRounds is the number of consecutive rounds with failures. LastError is the last error, which may be from an
	// earlier round.
	FailedRounds int       `json:"failed_rounds"`
	LastError    string    `json:"last_error,omitempty"`
	LastErrorAt  time.Time `json:"last_error_at,omitzero"`
	// Do is the remedy. It is set if FailedRounds is large enough to be reported.
	Do string `json:"do,omitempty"`
}

// SlotStatus is a slot. At is the time at which it was sealed, or at which it could have been sealed.
type SlotStatus struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	At    time.Time `json:"at"`
}

// RollupStatus lists windows of raw samples with missing rollups.
type RollupStatus struct {
	// Listed is the time of the last listing; zero: never.
	Listed time.Time `json:"listed,omitzero"`
	// Windows is the number of windows that this process has to roll up. First lists the oldest of them.
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

// RestingStatus lists windows of rollups to be compacted, or windows of raw rows whose series are to be counted.
type RestingStatus struct {
	// Listed is the time of the last listing; zero: never. Done counts processed windows since the process started.
	Listed  time.Time       `json:"listed,omitzero"`
	Windows int             `json:"windows"`
	Done    int             `json:"done"`
	First   []RestingWindow `json:"first"` // some of them, the oldest first
}

// RestingWindow is a window of a RestingStatus. RestsSince is the time since which listings have found no write to it.
// Again is true if the window was compacted or counted before.
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

// TaskStatus is a failing task other than sealing.
type TaskStatus struct {
	Task        string    `json:"chore"`
	Failures    int       `json:"failures"`
	LastError   string    `json:"last_error"`
	LastErrorAt time.Time `json:"last_error_at"`
}

// shownWindows bounds RollupStatus.First.
const shownWindows = 20

// Status returns the state of the work. On a shared engine it reads the leases, to find the owners of partitions.
func (l *Loop) Status(ctx context.Context) Status {
	waiting, lag := l.behind()
	doing, took := l.pacer.longest()
	worked, rested := l.pacer.spent()
	s := Status{
		Alarm: lag > alarmLag, LagSeconds: lag.Seconds(), LagLimitSeconds: alarmLag.Seconds(), WaitingSlots: waiting,
		StuckPartitions: append([]int{}, l.progress.stuck()...), Doing: doing, DoingSeconds: took.Seconds(),
		WorkedSeconds: worked.Seconds(), RestedSeconds: rested.Seconds(), Share: l.opts.Share,
		Rollups: l.backlog.status(l.owns), Compaction: l.compactions.status(), Counting: l.uncounted.status(),
		Imports: l.store.Member().Imports.List(),
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

// owners sets the owners of the partitions.
func (l *Loop) owners(ctx context.Context, s *Status) {
	leases, err := l.store.Member().Leases(ctx, l.store.Partitions())
	if err != nil {
		s.Tasks = append(s.Tasks, TaskStatus{
			Task: "reading the leases", Failures: 1, LastError: err.Error(), LastErrorAt: l.opts.Now().UTC(),
		})
		return
	}
	for p := range min(len(leases), len(s.Partitions)) {
		if leases[p].Owner == "" {
			continue
		}
		s.Partitions[p].Owner, s.Partitions[p].Since = leases[p].Name, instant(leases[p].SinceMS)
		if s.Partitions[p].Owner == "" {
			s.Partitions[p].Owner = leases[p].Owner // the process has no advertised name
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
		out := PartitionStatus{
			Partition: i, WaitingSlots: len(x.waiting), DamagedSlots: len(x.left), FailedRounds: x.failures,
		}
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
		w := WindowStatus{
			Tenant: u.Tenant, Start: instant(u.StartMS), End: instant(u.EndMS), Seals: u.Seals, Failures: u.failures,
		}
		if u.err != nil {
			w.LastError, w.LastErrorAt = u.err.Error(), utc(u.at)
		}
		s.First = append(s.First, w)
	}
	return s
}

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// utc removes the monotonic clock and the time zone. Zero stays zero.
func utc(t time.Time) time.Time { return t.Round(0).UTC() }
