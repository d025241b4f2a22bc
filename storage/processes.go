package storage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	// beatInterval is how often a process says that it is there.
	beatInterval = 2 * time.Second
	// periodBeats is after how many beats the periods are read anew. Whoever hasn't for maxSilence doesn't
	// acknowledge, so that nobody misses the beginning of a period: see periodLead.
	periodBeats = 15
	// processLife is how long a process' row stands after its last beat; its tails are gone before.
	processLife = 2 * tailLife
	// maxSilence is how long after its last durable beat a process may acknowledge.
	maxSilence = tailLife / 4
	// maxClockOff is by how much this clock may differ from the engine's. Protocol: less than a day between
	// any two processes (decisions/005).
	maxClockOff = 6 * time.Hour
)

// ErrClock says that this machine's clock isn't believed: nothing is removed by it, and over a shared engine no samples
// are taken.
var ErrClock = errors.New("storage: this machine's clock isn't believed")

// Process is what a process tells the others of itself.
type Process struct {
	// Name is where it can be reached, for people.
	Name string `json:"name"`
	// Target is what it does: all, write, read or downsample.
	Target  string `json:"target"`
	Version string `json:"version"`
	// StartedMS and ClockMS are its start and its clock at its last beat, milliseconds.
	StartedMS int64 `json:"started_ms"`
	ClockMS   int64 `json:"clock_ms"`
	// Leaving says that it takes no more work, for it is about to end.
	Leaving bool `json:"leaving,omitempty"`
	// Doubted says that it takes none because its clock isn't believed.
	Doubted bool `json:"doubted,omitempty"`
	// Writer names it in the stage, hexadecimal.
	Writer string `json:"-"`
	// Beat counts how often it said that it is there.
	Beat int64 `json:"beat"`
}

// processes keeps this process' row in table processes.
type processes struct {
	s *Store

	mu      sync.Mutex
	beats   int64
	last    time.Time // when the last durable beat was begun
	leaving bool
}

func processesPartition() engine.Key { return engine.Key{engine.Int(0)} }

// run beats until ctx ends.
func (p *processes) run(ctx context.Context) {
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := p.beat(ctx); err != nil && ctx.Err() == nil {
			p.s.opts.Logger.Warn("this process could not tell the others that it is there; the next beat may", "err", err)
		}
	}
}

// beat writes the process' row, unless it only looks, and looks at the periods and at the engine's clock.
func (p *processes) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	now := p.s.opts.Now()
	_, doubted := p.s.clockOff()
	p.mu.Lock()
	p.beats++
	self := p.s.opts.Self
	self.Beat, self.Leaving, self.Doubted = p.beats, p.leaving, doubted
	p.mu.Unlock()
	self.ClockMS = now.UnixMilli()
	if !p.s.opts.ReadOnly {
		if err := p.tell(ctx, &self, now); err != nil {
			return err
		}
	}
	if self.Beat == 1 || self.Leaving || self.Beat%periodBeats == 0 || p.s.opts.seams.still {
		if err := p.state(ctx, &self, now); err != nil {
			return err
		}
	}
	if self.Beat%periodBeats == 0 {
		if err := p.s.refreshPeriods(ctx); err != nil {
			return err
		}
	}
	if clock := p.s.clock.theirs; clock != nil {
		theirs, err := clock.Clock(ctx)
		if err != nil {
			return fmt.Errorf("storage: asking for the engine's clock: %w", err)
		}
		p.s.compared(theirs)
	}
	p.mu.Lock()
	p.last = now
	p.mu.Unlock()
	return p.s.keepSeen(ctx)
}

// tell writes the process' row.
func (p *processes) tell(ctx context.Context, self *Process, now time.Time) error {
	value, err := json.Marshal(self)
	if err != nil {
		return err
	}
	err = p.s.eng.Write(ctx, []engine.Batch{{Table: engine.Processes, Partition: processesPartition(), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(p.s.writer)}, Timestamp: self.Beat, Expires: now.Add(processLife).Unix(), Value: value,
	}}}})
	if err != nil {
		return fmt.Errorf("storage: writing this process' row: %w", err)
	}
	return nil
}

// Elapsed is how long it is since a time was read from the clock, at least: a machine that was suspended
// doesn't count it in the monotonic clock, and one whose clock was set not in the other.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since).Abs(), now.Round(0).Sub(since.Round(0)).Abs())
}

// Unheard is how long it is since this process told the others durably that it is there; 0 where it is alone. From Silence
// on they take its leases.
func (s *Store) Unheard() time.Duration {
	if !s.opts.Shared {
		return 0
	}
	s.processes.mu.Lock()
	defer s.processes.mu.Unlock()
	return Elapsed(s.processes.last, s.opts.Now())
}

// mayAcknowledge says why a commit that was begun at started, and is durable, mustn't be acknowledged:
// other processes may no longer look for it.
func (s *Store) mayAcknowledge(started time.Time) error {
	if err := s.mayWrite(); err != nil {
		return err
	}
	p := s.processes
	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.opts.Now()
	switch {
	case Elapsed(p.last, now) > maxSilence:
		return fmt.Errorf("%w: this process was not heard of for %v", engine.ErrUnavailable, Elapsed(p.last, now).Round(time.Second))
	case Elapsed(started, now) > commitTimeout:
		return fmt.Errorf("%w: the write took longer than %v", engine.ErrUnavailable, commitTimeout)
	}
	return nil
}

// mayWrite says why nothing should be written: it couldn't be acknowledged, so its sender would send it again, and
// again it would be written. A store's only process takes samples with a clock that isn't believed, too.
func (s *Store) mayWrite() error {
	if !s.opts.Shared {
		return s.mayChange()
	}
	return s.believed()
}

// Processes lists the processes that beat within the last hours.
func (s *Store) Processes(ctx context.Context) (list []Process, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Processes, Partition: processesPartition()}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing the processes: %w", err)
		}
		var p Process
		if err := json.Unmarshal(row.Value, &p); err != nil {
			s.corrupt(engine.Processes, fmt.Errorf("storage: a malformed row of process %x: %w", row.Clustering[0].Text, err))
			continue
		}
		p.Writer = hex.EncodeToString([]byte(row.Clustering[0].Text))
		list = append(list, p)
	}
	return list, nil
}

// Writer is this process' name in the stage, hexadecimal, new at every start.
func (s *Store) Writer() string { return hex.EncodeToString([]byte(s.writer)) }

// catchUp makes visible what other processes have acknowledged.
func (s *Store) catchUp(ctx context.Context) error {
	if !s.opts.Shared {
		return nil
	}
	if !s.opts.Follow {
		return ErrNoQueries
	}
	return s.follower.catchUp(ctx)
}

// ErrNoQueries says that the store was opened without Follow.
var ErrNoQueries = errors.New("storage: this process answers no queries; ask another one")

// Downsamples says whether the process works off what waits.
func (p *Process) Downsamples() bool {
	return !p.Leaving && !p.Doubted && (p.Target == "all" || p.Target == "downsample")
}

// Leave tells the others that this process takes no more work, so that they needn't wait until it isn't heard
// of. It may go on writing.
func (s *Store) Leave(ctx context.Context) error {
	s.processes.mu.Lock()
	s.processes.leaving = true
	s.processes.mu.Unlock()
	return s.processes.beat(ctx)
}
