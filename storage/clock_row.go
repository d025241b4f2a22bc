package storage

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// clockList is the list of table processes that has one row: what the store has seen of time.
const clockList = 1

func clockPartition() engine.Key { return engine.Key{engine.Int(clockList)} }

// clockKey is the row's clustering key: no process has this name.
func clockKey() engine.Key { return engine.Key{engine.Text(strings.Repeat("\x00", engine.IDLen))} }

// clockBeat is what the row holds, as JSON. Its write timestamp is SeenMS, so the greatest wins.
type clockBeat struct {
	// SeenMS is how much time the store has seen pass, ClockMS what time it was then, milliseconds.
	SeenMS  int64 `json:"seen_ms"`
	ClockMS int64 `json:"clock_ms"`
	// Doubt is there while the clock isn't believed.
	Doubt *doubtBeat `json:"doubt,omitempty"`
	// Spans are the times at which something may be staged, where the store has one process.
	Spans timeSpans `json:"spans,omitempty"`
}

type doubtBeat struct {
	ByMS    int64 `json:"by_ms"`
	SinceMS int64 `json:"since_ms"`
	ClockMS int64 `json:"clock_ms"`
}

func (c *clock) beat() clockBeat {
	b := clockBeat{SeenMS: c.seen.Milliseconds(), ClockMS: c.expected.UnixMilli(), Spans: c.staged}
	if d := c.doubt; d != nil && c.alone {
		b.Doubt = &doubtBeat{d.by.Milliseconds(), d.since.Milliseconds(), d.clock.UnixMilli()}
	}
	return b
}

// maxSeenMS bounds what a row may say: a time.Duration holds it.
const maxSeenMS = int64(1<<63-1) / int64(time.Millisecond)

func parseClock(b []byte) (clockBeat, error) {
	var beat clockBeat
	if err := json.Unmarshal(b, &beat); err != nil {
		return beat, fmt.Errorf("storage: the row of what the store has seen of time is malformed: %w", err)
	}
	d := beat.Doubt
	if beat.SeenMS < 0 || beat.SeenMS > maxSeenMS || d != nil && (d.SinceMS < 0 || d.SinceMS > beat.SeenMS || max(d.ByMS, -d.ByMS) > maxSeenMS) {
		return beat, fmt.Errorf("storage: the row of what the store has seen of time makes no sense: %s", b)
	}
	for i, span := range beat.Spans {
		if span.From < -format.MaxTime || span.To > format.MaxTime || span.From > span.To || i > 0 && span.From <= beat.Spans[i-1].To || i == maxStagedSpans {
			return beat, fmt.Errorf("storage: the spans of time in which something was staged make no sense: %s", b)
		}
	}
	return beat, nil
}

// readClock reads the row.
func (s *Store) readClock(ctx context.Context) (beat clockBeat, found bool, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Processes, Partition: clockPartition()}) {
		if err != nil {
			return beat, false, fmt.Errorf("storage: reading what the store has seen of time: %w", err)
		}
		if beat, err = parseClock(row.Value); err != nil {
			s.corrupt(engine.Processes, err) // It stays until the store has seen more time than it had then.
			return clockBeat{}, false, nil
		}
		return beat, true, nil
	}
	return beat, false, nil
}

// openClock makes the clock go on from what the store has seen. A store that has no row was written by an earlier
// release, or is new: what it holds says how late it was at least.
func (s *Store) openClock(ctx context.Context) error {
	c := &s.clock
	c.alone = !s.opts.Shared
	c.theirs, _ = engine.As[engine.Clock](s.eng)
	c.start(&s.opts)
	beat, found, err := s.readClock(ctx)
	if err != nil {
		return err
	}
	if !found && c.alone {
		if beat.ClockMS, err = s.lastKnown(ctx); err != nil {
			return err
		}
		beat.SeenMS = max(0, beat.ClockMS-s.created.UnixMilli())
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
	s.look()
	if c.alone {
		if c.staged = beat.Spans; len(c.staged) == 0 {
			c.staged = s.assumedSpans()
		}
		c.stagedKept = c.staged
	}
	told := c.told
	c.mu.Unlock()
	if told {
		return s.keepSeen(ctx)
	}
	return nil
}

// lastKnown returns a time at which the store surely was in use, milliseconds: as late a one as rows tell of.
func (s *Store) lastKnown(ctx context.Context) (int64, error) {
	last, now := s.created.UnixMilli(), s.opts.Now().UnixMilli()
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Low, Partition: lowPartition(0)}) {
		if err != nil {
			return 0, fmt.Errorf("storage: reading the marks of partition 0: %w", err)
		}
		if hour, n := binary.Varint(row.Value); n > 0 && row.Clustering[0].Text == lowHour {
			last = max(last, (hour+hourLag)*format.HourMS)
		}
	}
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range tenants {
		windows, err := s.windowsOf(ctx, tenant, format.FirstWindow(rollup.Raw), s.period.WindowAt(rollup.Raw, now))
		if err != nil {
			return 0, err
		}
		if n := len(windows); n > 0 {
			start, _ := s.period.WindowSpan(windows[n-1])
			last = max(last, start)
		}
	}
	return last, nil
}

// keepSeen makes what was seen of time durable, where enough of it has passed, or the next process would look for what is
// staged at too few times.
func (s *Store) keepSeen(ctx context.Context) error {
	c := &s.clock
	c.mu.Lock()
	s.look()
	due := c.seen-c.wrote >= keepInterval || c.told || c.spansDue()
	c.mu.Unlock()
	if !due || s.opts.ReadOnly {
		return nil
	}
	if s.opts.Shared { // Others measure the same time.
		theirs, _, err := s.readClock(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.learn(time.Duration(theirs.SeenMS) * time.Millisecond)
		c.mu.Unlock()
	}
	c.mu.Lock()
	// Whoever writes beside this one writes an older or a newer row, and the newest knows all.
	c.seen = max(c.seen, c.kept+time.Millisecond, c.wrote+time.Millisecond)
	c.wrote = c.seen.Truncate(time.Millisecond)
	beat := c.beat()
	c.mu.Unlock()
	value, err := json.Marshal(beat)
	if err != nil {
		return err
	}
	if err := s.eng.Write(ctx, []engine.Batch{{Table: engine.Processes, Partition: clockPartition(), Mutations: []engine.Mutation{{
		Clustering: clockKey(), Timestamp: beat.SeenMS, Value: value,
	}}}}); err != nil {
		return fmt.Errorf("storage: writing what the store has seen of time: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen := time.Duration(beat.SeenMS) * time.Millisecond; seen >= c.kept {
		c.kept, c.told, c.stagedKept = seen, false, beat.Spans
	}
	return nil
}

// learn takes over what another process has seen, which is durable.
func (c *clock) learn(seen time.Duration) {
	c.seen, c.kept = max(c.seen, seen), max(c.kept, seen)
}
