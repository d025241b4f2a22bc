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

// statedKeep are the retentions of a process of several, as the others read them. The expiries of windows, the boundaries and which
// samples are too old follow the longest of all processes that are there: one that was started with a shorter retention
// takes nothing from what another promises, until that one has ended (decisions/017).
type statedKeep struct {
	All     statedLife            `json:"all"`
	Tenants map[string]statedLife `json:"tenants,omitempty"`
	Classes map[string]statedLife `json:"classes,omitempty"` // by name
	// Leaving is true if the process is about to end.
	Leaving bool `json:"leaving,omitempty"`
}

// statedLife is a Keep in milliseconds; 0: for ever.
type statedLife struct {
	RawMS         int64 `json:"raw_ms"`
	FiveMinutesMS int64 `json:"5m_ms"`
	OneHourMS     int64 `json:"1h_ms"`
}

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

// words returns the text of the process' retentions.
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

// state returns this process' retentions as a statement for the others.
func (s *Store) state(leaving bool) ([]byte, error) {
	mine := s.classes.stated()
	mine.Leaving = leaving
	return json.Marshal(mine)
}

// learnStated takes over the statements of the others.
func (s *Store) learnStated(ctx context.Context) error {
	others, err := s.statedByOthers(ctx)
	if err != nil {
		return err
	}
	s.classes.others.Store(&others)
	return nil
}

// statedByOthers reads how long the other processes keep what.
func (s *Store) statedByOthers(ctx context.Context) (list []statedKeep, err error) {
	err = s.member.EachStatement(ctx, func(writer string, value []byte) {
		var k statedKeep
		if err := json.Unmarshal(value, &k); err != nil {
			s.corrupt(engine.Processes, fmt.Errorf("storage: process %x advertises an unreadable retention: %w", writer, err))
			return
		}
		if !k.Leaving && !slices.ContainsFunc(list, k.equal) {
			list = append(list, k)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("storage: reading the retentions of other processes: %w", err)
	}
	return list, nil
}

// equal reports whether both state the same, so that one of them is enough.
func (k *statedKeep) equal(other statedKeep) bool {
	return k.All == other.All && maps.Equal(k.Tenants, other.Tenants) && maps.Equal(k.Classes, other.Classes)
}
