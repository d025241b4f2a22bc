package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// retentionSummary is what the store row of the retention holds, as JSON: how long things are kept, in words, by what
// they are. It stands apart from the settings, which releases without it would write anew.
type retentionSummary map[string]string

var (
	summaryPartition = engine.Key{engine.Text("retention")}
	summaryItem      = engine.Key{engine.Text("told")}
)

// words returns the text of the retentions.
func (k Keep) words() string {
	in := func(d time.Duration) string {
		if d == 0 {
			return "forever"
		}
		return d.String()
	}
	return fmt.Sprintf("raw %s, 5m %s, 1h %s", in(k.Raw), in(k.FiveMinutes), in(k.OneHour))
}

func (c *classes) summary() retentionSummary {
	told := retentionSummary{"all": c.base.words()}
	for name, keep := range c.tenants {
		told[fmt.Sprintf("tenant %q", name)] = keep.words()
	}
	for i := range c.configured {
		x := &c.configured[i]
		var lists []string
		for _, ms := range x.Match {
			var words []string
			for _, m := range ms {
				words = append(words, m.String())
			}
			lists = append(lists, "{"+strings.Join(words, ",")+"}")
		}
		told[fmt.Sprintf("class %q", x.Name)] = x.words() + " for " + strings.Join(lists, " or ")
	}
	return told
}

// LogRetentionChange logs in what the retention differs from that with which this was called last on this store, by any
// process, and remembers it. It is for processes that write.
func (s *Store) LogRetentionChange(ctx context.Context) error {
	now := s.classes.summary()
	before, value, err := s.readRetentionSummary(ctx)
	if err != nil {
		return err
	}
	if before != nil {
		s.logChanges(before, now)
		if maps.Equal(before, now) {
			return nil
		}
	}
	after, err := json.Marshal(now)
	if err != nil {
		return err
	}
	// Where another process was faster, its change was logged there.
	if _, _, err := s.eng.CompareAndSet(ctx, engine.Store, summaryPartition, summaryItem, value, after); err != nil {
		return fmt.Errorf("storage: recording the retention: %w", err)
	}
	return nil
}

// readRetentionSummary reads the last summary, and its bytes; nil: there is none. One that can't be read is logged anew.
func (s *Store) readRetentionSummary(ctx context.Context) (before retentionSummary, value []byte, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: summaryPartition}) {
		if err != nil {
			return nil, nil, fmt.Errorf("storage: reading the last retention: %w", err)
		}
		value = slices.Clone(row.Value)
	}
	if value != nil && json.Unmarshal(value, &before) != nil {
		before = nil
	}
	return before, value, nil
}

func (s *Store) logChanges(before, now retentionSummary) {
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, of := range slices.Sorted(maps.Keys(all)) {
		was, is := before[of], now[of]
		if was == is {
			continue
		}
		as := func(words string) string {
			if words == "" {
				return "unknown"
			}
			return words
		}
		s.opts.Logger.Warn("the retention has changed: samples past the new one are hidden from now on and deleted after a week; until then, a "+
			"longer retention shows them again. On Cassandra, rows expire at the latest with the TTL they were written with",
			"of", of, "was", as(was), "is", as(is))
	}
}
