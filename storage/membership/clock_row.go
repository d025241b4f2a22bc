package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// clockKey is the row's clustering key: no process has this name.
func clockKey() engine.Key { return engine.Key{engine.Text(strings.Repeat("\x00", engine.IDLen))} }

// clockBeat is what the row holds, as JSON. Its write timestamp is SeenMS, so the greatest wins.
type clockBeat struct {
	// SeenMS is how much time the store has seen pass, ClockMS what time it was then, milliseconds.
	SeenMS  int64 `json:"seen_ms"`
	ClockMS int64 `json:"clock_ms"`
	// Doubt is there while the clock isn't believed.
	Doubt *doubtBeat `json:"doubt,omitempty"`
}

type doubtBeat struct {
	ByMS    int64 `json:"by_ms"`
	SinceMS int64 `json:"since_ms"`
	ClockMS int64 `json:"clock_ms"`
}

func (c *CheckedClock) beat() clockBeat {
	b := clockBeat{SeenMS: c.seen.Milliseconds(), ClockMS: c.expected.UnixMilli()}
	if d := c.doubt; d != nil && c.alone {
		b.Doubt = &doubtBeat{d.by.Milliseconds(), d.since.Milliseconds(), d.clock.UnixMilli()}
	}
	return b
}

// maxSeenMS bounds the seen time of a row: a time.Duration holds it.
const maxSeenMS = int64(1<<63-1) / int64(time.Millisecond)

func parseClock(b []byte) (clockBeat, error) {
	var beat clockBeat
	if err := json.Unmarshal(b, &beat); err != nil {
		return beat, fmt.Errorf("membership: the row of recorded time is malformed: %w", err)
	}
	d := beat.Doubt
	if beat.SeenMS < 0 || beat.SeenMS > maxSeenMS || d != nil && (d.SinceMS < 0 || d.SinceMS > beat.SeenMS || max(d.ByMS, -d.ByMS) > maxSeenMS) {
		return beat, fmt.Errorf("membership: the row of recorded time is inconsistent: %s", b)
	}
	return beat, nil
}

// readRow reads the row.
func (c *CheckedClock) readRow(ctx context.Context) (beat clockBeat, found bool, err error) {
	for row, err := range c.o.Engine.Scan(ctx, engine.Range{Table: engine.Processes, Partition: listPartition(clockList)}) {
		if err != nil {
			return beat, false, fmt.Errorf("membership: reading the recorded time: %w", err)
		}
		if beat, err = parseClock(row.Value); err != nil {
			c.o.Corrupt(engine.Processes, err) // It stays until the store has seen more time than it had then.
			return clockBeat{}, false, nil
		}
		return beat, true, nil
	}
	return beat, false, nil
}

// resume makes the clock go on from what the store has seen. A store that has no row has lost it,
// or is new: its contents show how late it was at least.
func (c *CheckedClock) resume(ctx context.Context) error {
	c.alone = !c.o.Shared
	c.theirs, _ = engine.As[engine.Clock](c.o.Engine)
	c.start()
	beat, stored, err := c.readRow(ctx)
	if err != nil {
		return err
	}
	found := stored
	if !found && c.alone {
		if beat.ClockMS, err = c.o.LastKnown(ctx); err != nil {
			return err
		}
		beat.SeenMS = max(0, beat.ClockMS-c.o.Created.UnixMilli())
		found = true
	}
	c.mu.Lock()
	c.seen = time.Duration(beat.SeenMS) * time.Millisecond
	c.kept, c.wrote = c.seen, c.seen
	if found && c.alone {
		c.expected = time.UnixMilli(beat.ClockMS)
		if d := beat.Doubt; d != nil {
			c.doubt = &doubt{time.Duration(d.ByMS) * time.Millisecond, time.Duration(d.SinceMS) * time.Millisecond, time.UnixMilli(d.ClockMS)}
		}
	}
	c.look()
	if c.alone && !stored && !c.o.ReadOnly { // Otherwise each start within the first minute would take the time before it for seen.
		c.unkept = true
		c.kept, c.wrote = c.seen-time.Millisecond, c.seen-time.Millisecond
	}
	unkept := c.unkept
	c.mu.Unlock()
	if unkept {
		return c.KeepSeen(ctx)
	}
	return nil
}

// Recall reads what a store that is only looked at has seen of time, by which SeenKept goes from now on. It returns what time it was
// then, zero where that isn't stored, and whether the clock wasn't believed, or mustn't be now.
func (c *CheckedClock) Recall(ctx context.Context) (last time.Time, doubted bool, err error) {
	beat, found, err := c.readRow(ctx)
	if err != nil || !found {
		return time.Time{}, false, err
	}
	c.mu.Lock()
	c.kept = time.Duration(beat.SeenMS) * time.Millisecond
	c.mu.Unlock()
	last = time.UnixMilli(beat.ClockMS)
	return last, beat.Doubt != nil || c.o.Now().Sub(last).Abs() > MaxLeap, nil
}

// KeepSeen makes the seen time durable, where enough of it has passed.
func (c *CheckedClock) KeepSeen(ctx context.Context) error {
	c.mu.Lock()
	c.look()
	due := c.seen-c.wrote >= keepInterval || c.unkept
	c.mu.Unlock()
	if !due || c.o.ReadOnly {
		return nil
	}
	if c.o.Shared { // Others measure the same time.
		theirs, _, err := c.readRow(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.learn(time.Duration(theirs.SeenMS) * time.Millisecond)
		c.mu.Unlock()
	}
	c.mu.Lock()
	// Whoever writes beside this one writes an older or a newer row, and the newest includes all.
	c.seen = max(c.seen, c.kept+time.Millisecond, c.wrote+time.Millisecond)
	c.wrote = c.seen.Truncate(time.Millisecond)
	beat := c.beat()
	c.mu.Unlock()
	value, err := json.Marshal(beat)
	if err != nil {
		return err
	}
	if err := c.o.Engine.Write(ctx, []engine.Batch{{Table: engine.Processes, Partition: listPartition(clockList), Mutations: []engine.Mutation{{
		Clustering: clockKey(), Timestamp: beat.SeenMS, Value: value,
	}}}}); err != nil {
		return fmt.Errorf("membership: recording the elapsed time: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen := time.Duration(beat.SeenMS) * time.Millisecond; seen >= c.kept {
		c.kept, c.unkept = seen, false
	}
	return nil
}

// learn takes over what another process has seen, which is durable.
func (c *CheckedClock) learn(seen time.Duration) {
	c.seen, c.kept = max(c.seen, seen), max(c.kept, seen)
}
