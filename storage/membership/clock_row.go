package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// clockKey returns the row's clustering key. No process has this name.
func clockKey() engine.Key { return engine.Key{engine.Text(strings.Repeat("\x00", engine.IDLen))} }

// clockBeat is the row's value, as JSON. Its write timestamp is SeenMS, so the row with the highest one wins.
type clockBeat struct {
	// SeenMS is the observed uptime, and ClockMS the expected time at that moment, in milliseconds.
	SeenMS  int64 `json:"seen_ms"`
	ClockMS int64 `json:"clock_ms"`
	// Nil while the clock is trusted.
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

// maxSeenMS bounds the observed uptime of a row, so that it fits a time.Duration.
const maxSeenMS = int64(1<<63-1) / int64(time.Millisecond)

func parseClock(b []byte) (clockBeat, error) {
	var beat clockBeat
	if err := json.Unmarshal(b, &beat); err != nil {
		return beat, fmt.Errorf("membership: the row of recorded time is malformed: %w", err)
	}
	d := beat.Doubt
	if beat.SeenMS < 0 || beat.SeenMS > maxSeenMS ||
		d != nil && (d.SinceMS < 0 || d.SinceMS > beat.SeenMS || max(d.ByMS, -d.ByMS) > maxSeenMS) {
		return beat, fmt.Errorf("membership: the row of recorded time is inconsistent: %s", b)
	}
	return beat, nil
}

func (c *CheckedClock) readRow(ctx context.Context) (beat clockBeat, found bool, err error) {
	for row, err := range c.o.Engine.Scan(ctx, engine.Range{
		Table: engine.Processes, Partition: listPartition(clockList),
	}) {
		if err != nil {
			return beat, false, fmt.Errorf("membership: reading the recorded time: %w", err)
		}
		if beat, err = parseClock(row.Value); err != nil {
			c.o.Corrupt(engine.Processes, err) // It is overwritten once the observed uptime exceeds the row's.
			return clockBeat{}, false, nil
		}
		return beat, true, nil
	}
	return beat, false, nil
}

// resume continues from the stored observed uptime. A store without that row is new or has lost it: the time since its
// creation that its contents prove is used instead.
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
			c.doubt = &doubt{
				time.Duration(d.ByMS) * time.Millisecond, time.Duration(d.SinceMS) * time.Millisecond,
				time.UnixMilli(d.ClockMS),
			}
		}
	}
	c.look()
	if c.alone && !stored && !c.o.ReadOnly {
		// Otherwise each start within the first minute would count the time before it.
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

// Recall reads the observed uptime of a store that isn't open, for SeenKept. last is the expected time when it was last
// written, zero if it is missing. The second result is true if the clock was untrusted then, or must not be trusted
// now.
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

// KeepSeen makes the observed uptime durable, if keepInterval has passed since the last write.
func (c *CheckedClock) KeepSeen(ctx context.Context) error {
	c.mu.Lock()
	c.look()
	due := c.seen-c.wrote >= keepInterval || c.unkept
	c.mu.Unlock()
	if !due || c.o.ReadOnly {
		return nil
	}
	if c.o.Shared { // Other processes measure the same time.
		theirs, _, err := c.readRow(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.learn(time.Duration(theirs.SeenMS) * time.Millisecond)
		c.mu.Unlock()
	}
	c.mu.Lock()
	// The row of a concurrent writer is older or newer than this one, and the newest includes the time of all.
	c.seen = max(c.seen, c.kept+time.Millisecond, c.wrote+time.Millisecond)
	c.wrote = c.seen.Truncate(time.Millisecond)
	beat := c.beat()
	c.mu.Unlock()
	value, err := json.Marshal(beat)
	if err != nil {
		return err
	}
	if err := c.o.Engine.Write(ctx, []engine.Batch{
		{Table: engine.Processes, Partition: listPartition(clockList), Mutations: []engine.Mutation{{
			Clustering: clockKey(), Timestamp: beat.SeenMS, Value: value,
		}}},
	}); err != nil {
		return fmt.Errorf("membership: recording the elapsed time: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen := time.Duration(beat.SeenMS) * time.Millisecond; seen >= c.kept {
		c.kept, c.unkept = seen, false
	}
	return nil
}

// learn adopts the durable observed uptime that another process has written. The caller must hold mu.
func (c *CheckedClock) learn(seen time.Duration) {
	c.seen, c.kept = max(c.seen, seen), max(c.kept, seen)
}
