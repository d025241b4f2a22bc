package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// statedKeep is how long a process of several keeps what, as it tells the others. What rows live, what is hidden and which
// samples are too old follows the longest of all processes that are there: one that was started with a shorter retention
// takes nothing from what another promises, until that one has ended (decisions/017).
type statedKeep struct {
	All     statedLife            `json:"all"`
	Tenants map[string]statedLife `json:"tenants,omitempty"`
	Classes map[string]statedLife `json:"classes,omitempty"` // by name
	// Leaving says that the process is about to end.
	Leaving bool `json:"leaving,omitempty"`
}

// statedLife is a Keep in milliseconds; 0: for ever.
type statedLife struct {
	RawMS         int64 `json:"raw_ms"`
	FiveMinutesMS int64 `json:"5m_ms"`
	OneHourMS     int64 `json:"1h_ms"`
}

// statedKeeps is the list of table processes that has how long each keeps what.
const statedKeeps = 2

func statedPartition() engine.Key { return engine.Key{engine.Int(statedKeeps)} }

func statedOf(k Keep) statedLife {
	return statedLife{k.Raw.Milliseconds(), k.FiveMinutes.Milliseconds(), k.OneHour.Milliseconds()}
}

func (l statedLife) keep() Keep {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Keep{ms(l.RawMS), ms(l.FiveMinutesMS), ms(l.OneHourMS)}
}

// stated returns what this process is configured to keep.
func (c *classes) stated() statedKeep {
	k := statedKeep{All: statedOf(c.base)}
	for name, keep := range c.tenants {
		if k.Tenants == nil {
			k.Tenants = map[string]statedLife{}
		}
		k.Tenants[name] = statedOf(keep)
	}
	for i := range c.configured {
		if k.Classes == nil {
			k.Classes = map[string]statedLife{}
		}
		k.Classes[c.configured[i].Name] = statedOf(c.configured[i].Keep)
	}
	return k
}

// keep returns how long the process keeps rows of a tenant in a class with this name; "": in the default one.
func (k *statedKeep) keep(tenant, class string) Keep {
	if own, ok := k.Classes[class]; ok && class != "" {
		return own.keep()
	}
	if own, ok := k.Tenants[tenant]; ok {
		return own.keep()
	}
	return k.All.keep()
}

// words tells how long the process keeps what.
func (k *statedKeep) words() string {
	text := k.All.keep().words()
	for _, own := range []struct {
		of string
		n  int
	}{{"tenants", len(k.Tenants)}, {"classes", len(k.Classes)}} {
		if own.n > 0 {
			text += fmt.Sprintf(", %s otherwise: %d", own.of, own.n)
		}
	}
	return text
}

// longestStated returns the longest of keep and of what others state.
func (c *classes) longestStated(others *[]statedKeep, keep Keep, tenant string, class int64) Keep {
	if others == nil {
		return keep
	}
	name := c.nameOf(class)
	for i := range *others {
		keep = keep.longest((*others)[i].keep(tenant, name))
	}
	return keep
}

// state tells the others how long this process keeps what, unless it only looks, and takes over what they tell.
func (p *processes) state(ctx context.Context, self *Process, now time.Time) error {
	if !p.s.opts.ReadOnly {
		if err := p.tellKeep(ctx, self, now); err != nil {
			return err
		}
	}
	others, err := p.s.statedByOthers(ctx)
	if err != nil {
		return err
	}
	p.s.classes.others.Store(&others)
	return nil
}

// tellKeep tells the others how long this process keeps what.
func (p *processes) tellKeep(ctx context.Context, self *Process, now time.Time) error {
	mine := p.s.classes.stated()
	mine.Leaving = self.Leaving
	value, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	err = p.s.eng.Write(ctx, []engine.Batch{{Table: engine.Processes, Partition: statedPartition(), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(p.s.writer)}, Timestamp: self.Beat, Expires: now.Add(processLife).Unix(), Value: value,
	}}}})
	if err != nil {
		return fmt.Errorf("storage: telling how long this process keeps what: %w", err)
	}
	return nil
}

// end tells the others that this process' retention doesn't count any more, if that takes no time: what isn't told is over when
// its row is.
func (p *processes) end() {
	if !p.s.opts.Shared || p.s.opts.ReadOnly {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), beatInterval)
	defer cancel()
	p.mu.Lock()
	p.beats++
	self := Process{Beat: p.beats, Leaving: true}
	p.mu.Unlock()
	if err := p.tellKeep(ctx, &self, p.s.opts.Now()); err != nil {
		p.s.opts.Logger.Info("the others weren't told that this process ends; for two hours they keep what it keeps", "err", err)
	}
}

// statedByOthers reads how long the other processes keep what.
func (s *Store) statedByOthers(ctx context.Context) (list []statedKeep, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Processes, Partition: statedPartition()}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading how long others keep what: %w", err)
		}
		writer := row.Clustering[0].Text
		if writer == s.writer {
			continue
		}
		var k statedKeep
		if err := json.Unmarshal(row.Value, &k); err != nil {
			s.corrupt(engine.Processes, fmt.Errorf("storage: how long process %x keeps what can't be read: %w", writer, err))
			continue
		}
		if k.Leaving || slices.ContainsFunc(list, k.equal) {
			continue
		}
		list = append(list, k)
	}
	return list, nil
}

// equal says whether both state the same, so that one of them is enough.
func (k *statedKeep) equal(other statedKeep) bool {
	return k.All == other.All && maps.Equal(k.Tenants, other.Tenants) && maps.Equal(k.Classes, other.Classes)
}
