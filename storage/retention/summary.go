package retention

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// summary is the configured retention as text, by tenant and class. It is stored as JSON in a separate row, because
// older releases rewrite the settings without it.
type summary map[string]string

var (
	summaryPartition = engine.Key{engine.Text("retention")}
	summaryItem      = engine.Key{engine.Text("told")}
)

func (c *Configured) summary() summary {
	told := summary{"all": c.All.text()}
	for name, keep := range c.Tenants {
		told[fmt.Sprintf("tenant %q", name)] = keep.text()
	}
	for i := range c.Classes {
		x := &c.Classes[i]
		var lists []string
		for _, ms := range x.Match {
			var words []string
			for _, m := range ms {
				words = append(words, m.String())
			}
			lists = append(lists, "{"+strings.Join(words, ",")+"}")
		}
		told[fmt.Sprintf("class %q", x.Name)] = x.text() + " for " + strings.Join(lists, " or ")
	}
	return told
}

// LogChange logs how the retention differs from the retention at the last call for this store, by any process, and
// records it. Only processes that write to the store may call it.
func (k *Keeper) LogChange(ctx context.Context) error {
	now := k.env.Configured.summary()
	before, value, err := k.readSummary(ctx)
	if err != nil {
		return err
	}
	if before != nil {
		k.logChanges(before, now)
		if maps.Equal(before, now) {
			return nil
		}
	}
	after, err := json.Marshal(now)
	if err != nil {
		return err
	}
	// If another process has recorded its retention first, that process has logged the change.
	if _, _, err := k.env.Engine.CompareAndSet(
		ctx, engine.Store, summaryPartition, summaryItem, value, after,
	); err != nil {
		return fmt.Errorf("storage: recording the retention: %w", err)
	}
	return nil
}

// readSummary reads the last summary and its bytes. Both are nil if there is none. An unreadable summary will be
// replaced.
func (k *Keeper) readSummary(ctx context.Context) (before summary, value []byte, err error) {
	for row, err := range k.env.Engine.Scan(ctx, engine.Range{Table: engine.Store, Partition: summaryPartition}) {
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

func (k *Keeper) logChanges(before, now summary) {
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, of := range slices.Sorted(maps.Keys(all)) {
		was, is := before[of], now[of]
		if was == is {
			continue
		}
		k.env.Logger.Warn(
			"the retention has changed: samples past a shorter one are hidden from now on and deleted after a week; "+
				"until then, a longer retention shows them again. A longer one doesn't bring deleted samples back. "+
				"On Cassandra, rows expire at the latest with the TTL they were written "+
				"with", "of", of, "was", cmp.Or(was, "unknown"), "is", cmp.Or(is, "unknown"),
		)
	}
}
