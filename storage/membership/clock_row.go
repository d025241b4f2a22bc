package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// clockKey returns the clustering key of the observed uptime. It can't be the name of a process.
func clockKey() engine.Key { return engine.Key{engine.Text(strings.Repeat("\x00", engine.IDLen))} }

// clockRow is the stored observed uptime, as JSON. Its write timestamp is SeenMS, so that the row with the highest
// uptime wins.
type clockRow struct {
	// SeenMS is the observed uptime, and ClockMS the expected time at that moment, in milliseconds.
	SeenMS  int64 `json:"seen_ms"`
	ClockMS int64 `json:"clock_ms"`
	// Doubt is nil while the clock is trusted.
	Doubt *doubtRow `json:"doubt,omitempty"`
}

type doubtRow struct {
	ByMS    int64 `json:"by_ms"`
	SinceMS int64 `json:"since_ms"`
	ClockMS int64 `json:"clock_ms"`
}

func (c *CheckedClock) row() clockRow {
	b := clockRow{SeenMS: c.seen.Milliseconds(), ClockMS: c.expected.UnixMilli()}
	if d := c.doubt; d != nil && c.alone {
		b.Doubt = &doubtRow{d.by.Milliseconds(), d.since.Milliseconds(), d.clock.UnixMilli()}
	}
	return b
}

// maxSeenMS bounds the observed uptime of a row, so that it fits in a time.Duration.
const maxSeenMS = int64(1<<63-1) / int64(time.Millisecond)

func parseClock(b []byte) (clockRow, error) {
	var beat clockRow
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

func (c *CheckedClock) readRow(ctx context.Context) (beat clockRow, found bool, err error) {
	for row, err := range c.o.Engine.Scan(ctx, engine.Range{
		Table: engine.Processes, Partition: listPartition(clockList),
	}) {
		if err != nil {
			return beat, false, fmt.Errorf("membership: reading the recorded time: %w", err)
		}
		if beat, err = parseClock(row.Value); err != nil {
			c.o.Corrupt(engine.Processes, err) // StoreUptime overwrites the row once the observed uptime exceeds it.
			return clockRow{}, false, nil
		}
		return beat, true, nil
	}
	return beat, false, nil
}

// resumeUptime continues from the stored observed uptime. If the row is missing because the store is new or has lost
// it, a store's only process derives the uptime from the store's contents: the time from the store's creation to its
// last known use.
func (c *CheckedClock) resumeUptime(ctx context.Context) error {
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
	c.readClock()
	if c.alone && !stored && !c.o.ReadOnly {
		// The derived uptime is written immediately. Otherwise each start that lasts less than a minute would derive it
		// again.
		c.unkept = true
		c.kept, c.wrote = c.seen-time.Millisecond, c.seen-time.Millisecond
	}
	unkept := c.unkept
	c.mu.Unlock()
	if unkept {
		return c.StoreUptime(ctx)
	}
	return nil
}

// ReadUptime reads the observed uptime of a store that isn't open, so that StoredUptimeMS returns it. last is the
// expected time at the last write of the row, zero if the row is missing. The second result is true if the clock was
// untrusted then, or differs from last too much to be trusted now.
func (c *CheckedClock) ReadUptime(ctx context.Context) (last time.Time, doubted bool, err error) {
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

// StoreUptime makes the observed uptime durable, if storeInterval has passed since the last write.
func (c *CheckedClock) StoreUptime(ctx context.Context) error {
	c.mu.Lock()
	c.readClock()
	due := c.seen-c.wrote >= storeInterval || c.unkept
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
		c.raiseUptime(time.Duration(theirs.SeenMS) * time.Millisecond)
		c.mu.Unlock()
	}
	c.mu.Lock()
	// Two processes may write the row concurrently. The row with the higher uptime wins, and it includes the time that
	// both have measured.
	c.seen = max(c.seen, c.kept+time.Millisecond, c.wrote+time.Millisecond)
	c.wrote = c.seen.Truncate(time.Millisecond)
	beat := c.row()
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

// raiseUptime raises the observed uptime to a durable value that another process has written. The caller must hold mu.
func (c *CheckedClock) raiseUptime(seen time.Duration) {
	c.seen, c.kept = max(c.seen, seen), max(c.kept, seen)
}
