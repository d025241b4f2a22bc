package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	// BeatInterval is how often a process writes its beat.
	BeatInterval = 2 * time.Second
	// periodBeats is after how many beats the settings are read anew. Whoever hasn't for maxSilence doesn't
	// acknowledge, so that nobody misses the beginning of a period: see format.Periods.
	periodBeats = 15
	// ProcessLife is how long a process' row stands after its last beat; its tails are gone before.
	ProcessLife = 2 * TailLife
	// maxSilence is how long after its last durable beat a process may acknowledge.
	maxSilence = TailLife / 4
	// maxClockOff is by how much this clock may differ from the engine's. Protocol: less than a day between
	// any two processes (design/several-processes.md).
	maxClockOff = 6 * time.Hour
)

// beats keeps this process' row in table processes, where there are others.
type beats struct {
	o     *Options
	clock *CheckedClock
	// filling is freed at a beat where that could not be done when the turn ended.
	filling *Turn

	mu      sync.Mutex
	n       int64
	last    time.Time // when the last durable beat was begun
	leaving bool
}

// run beats until ctx ends.
func (b *beats) run(ctx context.Context) {
	every(ctx, BeatInterval, b.beat, func(err error) {
		b.o.Logger.Warn("can't send a heartbeat; the next one may succeed", "err", err)
	})
}

// beat writes the process' row, unless it only looks, and looks at the settings and at the engine's clock.
func (b *beats) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	now := b.o.Now()
	_, doubted := b.clock.Off()
	b.mu.Lock()
	b.n++
	self := b.o.Self
	self.Beat, self.Leaving, self.Doubted = b.n, b.leaving, doubted
	b.mu.Unlock()
	self.ClockMS = now.UnixMilli()
	if !b.o.ReadOnly {
		value, err := json.Marshal(self)
		if err != nil {
			return err
		}
		if err := b.write(ctx, processList, self.Beat, now, value); err != nil {
			return fmt.Errorf("membership: writing this process' row: %w", err)
		}
	}
	if self.Beat == 1 || self.Leaving || self.Beat%periodBeats == 0 || b.o.Still {
		if err := b.state(ctx, &self, now); err != nil {
			return err
		}
	}
	if self.Beat%periodBeats == 0 {
		if err := b.o.Refresh(ctx); err != nil {
			return err
		}
	}
	if b.clock.theirs != nil {
		if err := b.clock.compare(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.last = now
	b.mu.Unlock()
	return errors.Join(b.clock.KeepSeen(ctx), b.filling.giveLeft(ctx))
}

// write writes a row of this process. A clock that was never compared with the engine's may be so far behind that the row has expired there.
func (b *beats) write(ctx context.Context, list, beat int64, now time.Time, value []byte) error {
	row := engine.Batch{Table: engine.Processes, Partition: listPartition(list), Expires: b.clock.EngineTime().Add(ProcessLife).Unix(), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(b.o.Writer)}, Timestamp: beat, Value: value,
	}}}
	err := b.o.Engine.Write(ctx, []engine.Batch{row})
	if errors.Is(err, engine.ErrExpired) && b.clock.theirs != nil {
		if err := b.clock.compare(ctx); err != nil {
			return err
		}
		row.Expires = b.clock.EngineTime().Add(ProcessLife).Unix()
		err = b.o.Engine.Write(ctx, []engine.Batch{row})
	}
	return err
}

// state writes this process' statement for the others, unless it only looks, and takes over theirs.
func (b *beats) state(ctx context.Context, self *Process, now time.Time) error {
	if !b.o.ReadOnly {
		if err := b.tellStatement(ctx, self, now); err != nil {
			return err
		}
	}
	return b.o.Learn(ctx)
}

func (b *beats) tellStatement(ctx context.Context, self *Process, now time.Time) error {
	value, err := b.o.State(self.Leaving)
	if err != nil {
		return err
	}
	if err := b.write(ctx, statementList, self.Beat, now, value); err != nil {
		return fmt.Errorf("membership: advertising the retention of this process: %w", err)
	}
	return nil
}

// end replaces this process' statement by one that it ends, if that takes no time: otherwise the statement is over
// when its row is.
func (b *beats) end() {
	if b.o.ReadOnly {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), BeatInterval)
	defer cancel()
	b.mu.Lock()
	b.n++
	self := Process{Beat: b.n, Leaving: true}
	b.mu.Unlock()
	if err := b.tellStatement(ctx, &self, b.o.Now()); err != nil {
		b.o.Logger.Info("can't announce that this process stops; for two hours, other processes still apply its retention", "err", err)
	}
}

// leave announces to the others that this process takes no more work.
func (b *beats) leave(ctx context.Context) error {
	b.mu.Lock()
	b.leaving = true
	b.mu.Unlock()
	return b.beat(ctx)
}

// unheard is how long it is since this process' last durable beat.
func (b *beats) unheard() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Elapsed(b.last, b.o.Now())
}

// mayAcknowledge is MayAcknowledge where there are others.
func (b *beats) mayAcknowledge(started time.Time) error {
	if err := b.clock.MayRemove(); err != nil {
		return err
	}
	unheard, took := b.unheard(), Elapsed(started, b.o.Now())
	switch {
	case unheard > maxSilence:
		return fmt.Errorf("%w: this process sent no heartbeat for %v", engine.ErrUnavailable, unheard.Round(time.Second))
	case took > CommitTimeout:
		return fmt.Errorf("%w: the write took longer than %v", engine.ErrUnavailable, CommitTimeout)
	}
	return nil
}
