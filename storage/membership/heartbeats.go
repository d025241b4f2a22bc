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
	// HeartbeatInterval is the interval between heartbeats.
	HeartbeatInterval = 2 * time.Second
	// periodBeats is the number of heartbeats between reads of the settings. Each process reads a new period before the
	// period starts, because a process without a durable heartbeat for maxSilence acknowledges no writes: see
	// format.Periods.
	periodBeats = 15
	// ProcessTTL is the TTL of a process' row after its last heartbeat. It is longer than the TTL of its stream
	// positions.
	ProcessTTL = 2 * TailTTL
	// maxSilence is the max age of the last durable heartbeat at which a process may acknowledge writes.
	maxSilence = TailTTL / 4
	// maxClockDifference is the max difference between this machine's clock and the engine's. The protocol requires
	// that the clocks of any two processes differ by less than a day (design/several-processes.md).
	maxClockDifference = 6 * time.Hour
)

// heartbeats sends heartbeats in a shared store: it writes this process' row of table processes.
type heartbeats struct {
	o     *Options
	clock *CheckedClock
	// filling is the turn for changing rollups. If its lease couldn't be released at the end of a turn, a heartbeat
	// releases it.
	filling *Turn

	mu      sync.Mutex
	n       int64
	last    time.Time // start of the last durable heartbeat
	leaving bool
}

// run sends heartbeats until ctx ends.
func (b *heartbeats) run(ctx context.Context) {
	runEvery(ctx, HeartbeatInterval, b.send, func(err error) {
		b.o.Logger.Warn("can't send a heartbeat; the next one may succeed", "err", err)
	})
}

// send writes the process' row, unless the store is read-only, and compares the clock with the engine's. The first
// heartbeat, heartbeats that announce a leave, and every heartbeat whose number is a multiple of periodBeats also
// exchange the advertised state. The latter also read the settings.
func (b *heartbeats) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	now := b.o.Now()
	_, doubted := b.clock.Difference()
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
		if err := b.writeRow(ctx, processList, self.Beat, now, value); err != nil {
			return fmt.Errorf("membership: writing this process' row: %w", err)
		}
	}
	if self.Beat == 1 || self.Leaving || self.Beat%periodBeats == 0 || b.o.Still {
		if err := b.exchangeState(ctx, &self, now); err != nil {
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
	return errors.Join(b.clock.StoreUptime(ctx), b.filling.releaseLeftover(ctx))
}

// writeRow writes a row of this process. If this machine's clock was never compared with the engine's and is slow, the
// row may already have expired by the engine's clock. writeRow then compares the clocks and writes the row once more.
func (b *heartbeats) writeRow(ctx context.Context, list, beat int64, now time.Time, value []byte) error {
	row := engine.Batch{
		Table: engine.Processes, Partition: listPartition(list), Expires: b.clock.EngineTime().Add(ProcessTTL).Unix(),
		Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text(b.o.Writer)}, Timestamp: beat, Value: value,
		}},
	}
	err := b.o.Engine.Write(ctx, []engine.Batch{row})
	if errors.Is(err, engine.ErrExpired) && b.clock.theirs != nil {
		if err := b.clock.compare(ctx); err != nil {
			return err
		}
		row.Expires = b.clock.EngineTime().Add(ProcessTTL).Unix()
		err = b.o.Engine.Write(ctx, []engine.Batch{row})
	}
	return err
}

// exchangeState advertises this process' state, unless the store is read-only, and reads the state of the other
// processes.
func (b *heartbeats) exchangeState(ctx context.Context, self *Process, now time.Time) error {
	if !b.o.ReadOnly {
		if err := b.writeStatement(ctx, self, now); err != nil {
			return err
		}
	}
	return b.o.Learn(ctx)
}

func (b *heartbeats) writeStatement(ctx context.Context, self *Process, now time.Time) error {
	value, err := b.o.State(self.Leaving)
	if err != nil {
		return err
	}
	if err := b.writeRow(ctx, statementList, self.Beat, now, value); err != nil {
		return fmt.Errorf("membership: advertising the retention of this process: %w", err)
	}
	return nil
}

// advertiseStop advertises that this process is stopping. It gives up after HeartbeatInterval. If it fails, the
// advertised state expires with its row.
func (b *heartbeats) advertiseStop() {
	if b.o.ReadOnly {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), HeartbeatInterval)
	defer cancel()
	b.mu.Lock()
	b.n++
	self := Process{Beat: b.n, Leaving: true}
	b.mu.Unlock()
	if err := b.writeStatement(ctx, &self, b.o.Now()); err != nil {
		b.o.Logger.Info(
			"can't announce that this process stops; for two hours, other processes still apply its retention",
			"err", err,
		)
	}
}

// announceLeave announces that this process accepts no more work.
func (b *heartbeats) announceLeave(ctx context.Context) error {
	b.mu.Lock()
	b.leaving = true
	b.mu.Unlock()
	return b.send(ctx)
}

// age returns the time since the last durable heartbeat of this process.
func (b *heartbeats) age() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Elapsed(b.last, b.o.Now())
}

// mayAcknowledge implements Member.MayAcknowledge for a shared store.
func (b *heartbeats) mayAcknowledge(started time.Time) error {
	if err := b.clock.MayRemove(); err != nil {
		return err
	}
	unheard, took := b.age(), Elapsed(started, b.o.Now())
	switch {
	case unheard > maxSilence:
		return fmt.Errorf("%w: this process sent no heartbeat for %v",
			engine.ErrUnavailable, unheard.Round(time.Second))
	case took > CommitTimeout:
		return fmt.Errorf("%w: the write took longer than %v", engine.ErrUnavailable, CommitTimeout)
	}
	return nil
}
