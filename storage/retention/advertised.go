package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
)

// Advertised contains the retention of one process, as other processes read it. Expiries of windows, boundaries and the
// limit for old samples follow the longest retention of all live processes. A process with a shorter retention removes
// nothing that another process keeps, until the other process has stopped (design/retention.md).
type Advertised struct {
	All     KeptMS            `json:"all"`
	Tenants map[string]KeptMS `json:"tenants,omitempty"`
	Classes map[string]KeptMS `json:"classes,omitempty"` // by name
	// Leaving is true if the process is about to stop.
	Leaving bool `json:"leaving,omitempty"`
}

// advertised returns the configured retention in the form that other processes read.
func (c *Configured) advertised() Advertised {
	a := Advertised{All: toKeptMS(c.All), Tenants: map[string]KeptMS{}, Classes: map[string]KeptMS{}}
	for name, keep := range c.Tenants {
		a.Tenants[name] = toKeptMS(keep)
	}
	for i := range c.Classes {
		a.Classes[c.Classes[i].Name] = toKeptMS(c.Classes[i].Durations)
	}
	return a
}

// durationsOf returns the retention of a tenant's rows in the class with this name. "" is the default class.
func (a *Advertised) durationsOf(tenant, class string) Durations {
	if own, ok := a.Classes[class]; ok && class != "" {
		return own.durations()
	}
	if own, ok := a.Tenants[tenant]; ok {
		return own.durations()
	}
	return a.All.durations()
}

// Text returns the process's retention as text.
func (a *Advertised) Text() string {
	text := a.All.durations().text()
	if n := len(a.Tenants); n > 0 {
		text += fmt.Sprintf(", tenants otherwise: %d", n)
	}
	if n := len(a.Classes); n > 0 {
		text += fmt.Sprintf(", classes otherwise: %d", n)
	}
	return text
}

// Advertise returns this process's retention, encoded for other processes.
func (k *Keeper) Advertise(leaving bool) ([]byte, error) {
	mine := (*k.advertised.Load())[0]
	mine.Leaving = leaving
	return json.Marshal(mine)
}

// LoadAdvertised reads the retention of the other processes. Afterwards the longest retention of all processes applies.
func (k *Keeper) LoadAdvertised(ctx context.Context) error {
	list := (*k.advertised.Load())[:1:1]
	err := k.env.Advertised(ctx, func(writer string, value []byte) {
		var a Advertised
		if err := json.Unmarshal(value, &a); err != nil {
			k.env.Corrupt(engine.Processes, fmt.Errorf("storage: process %x advertises an unreadable retention: %w",
				writer, err))
			return
		}
		if !a.Leaving && !slices.ContainsFunc(list[1:], a.equal) {
			list = append(list, a)
		}
	})
	if err != nil {
		return fmt.Errorf("storage: reading the retentions of other processes: %w", err)
	}
	k.advertised.Store(&list)
	return nil
}

// DifferingTexts returns the retention of each other process as text, if processes differ.
func (k *Keeper) DifferingTexts() (words []string) {
	others := (*k.advertised.Load())[1:]
	for i := range others {
		if len(others) > 1 {
			words = append(words, others[i].Text())
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// equal reports whether both processes have the same retention.
func (a *Advertised) equal(other Advertised) bool {
	return a.All == other.All && maps.Equal(a.Tenants, other.Tenants) && maps.Equal(a.Classes, other.Classes)
}
