package retention

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// Configured is what a process is configured to keep.
type Configured struct {
	// All is the retention of series in no class, of tenants without their own.
	All Keep
	// Tenants have tenants' own retentions, of their series in no class.
	Tenants map[string]Keep
	// Classes take series of all tenants, the first that matches.
	Classes []Class
}

// Check returns an error for a configuration that contradicts itself.
func (c *Configured) Check(slot time.Duration) error {
	if err := c.All.Check(slot); err != nil {
		return err
	}
	if err := checkClasses(c.Classes, slot); err != nil {
		return err
	}
	for name, keep := range c.Tenants {
		if err := keep.Check(slot); err != nil {
			return fmt.Errorf("storage: retention of tenant %q: %w", name, err)
		}
	}
	return nil
}

// Env is what a Keeper needs of its store.
type Env struct {
	Engine     engine.Engine
	Period     *format.Periods
	Clock      *membership.CheckedClock
	Configured Configured
	// AddsClasses is true if this process adds its classes to the store.
	AddsClasses bool
	// Shared is true if other processes may use the store, and Expires if rows expire by themselves, at the time that they were written with.
	Shared, Expires bool
	Now             func() time.Time
	Logger          *slog.Logger
	// Refresh reads the settings again, and calls Learn.
	Refresh func(context.Context) error
	// Advertised calls f with what each of the other processes advertises.
	Advertised func(ctx context.Context, f func(writer string, value []byte)) error
	// Corrupt counts and logs a row of a table that can't be read.
	Corrupt func(*engine.Table, error)
	// Tenants lists the tenants that have rows, and Windows the windows from first to last in which a tenant may have rows, in order.
	Tenants func(context.Context) ([]string, error)
	Windows func(ctx context.Context, tenant string, first, last int64) ([]int64, error)
	// Stands reports whether there may be rows in any of these windows. Where that can't be read, it returns an error.
	Stands func(ctx context.Context, tenant string, first, last int64) (bool, error)
	// Written reports whether this process has written to a window, and Holds whether the head holds samples of slots from one to another.
	Written func(tenant string, window int64) bool
	Holds   func(from, to int64) bool
	// Samples estimates how many raw samples a class has in some windows; -1: it can't be estimated.
	Samples func(ctx context.Context, tenant string, class int64, windows []int64) (int64, error)
}

// Keeper has the retention classes of a store, and how long each keeps its rows. A class is the same for all tenants; a tenant's own retention is that of its
// series in the default class.
type Keeper struct {
	env     Env
	history atomic.Pointer[ClassHistory]
	// advertised are the retentions of this process, the first, and of the others of a shared store.
	advertised atomic.Pointer[[]Advertised]
	// lists were read. ownList is that of this process' classes; nil: it adds none to the store. logged is the newest when that was logged.
	lists   listMemory
	ownList *ClassList
	logged  atomic.Pointer[ListFrom]
	// boundaries caches the tenants' boundaries, and expiries when rows of windows expire.
	boundaries bounds.Map[string, *Boundaries]
	expiries   expiryMemory
}

// New returns a keeper of a store with a history of classes.
func New(env Env, history ClassHistory) *Keeper {
	k := &Keeper{env: env}
	k.history.Store(&history)
	k.advertised.Store(&[]Advertised{env.Configured.advertised()})
	return k
}

// Learn takes the classes that another process has added.
func (k *Keeper) Learn(history ClassHistory) {
	k.history.Store(&history)
	k.logLists()
}

// Expires reports whether rows expire by themselves.
func (k *Keeper) Expires() bool { return k.env.Expires }

// DropsTogether reports whether all rows of a tenant in a window go together: there is one class, and none expires by itself.
func (k *Keeper) DropsTogether() bool { return k.Classes() == 1 && !k.env.Expires }

// Classes returns how many classes there may be rows in, with the default one.
func (k *Keeper) Classes() int64 { return int64(len(k.history.Load().Classes)) + 1 }

// ClassNames lists the retention classes that the store has, or had.
func (k *Keeper) ClassNames() (names []string) {
	for _, c := range k.history.Load().Classes {
		names = append(names, c.Name)
	}
	return names
}

// nameOf returns the name of a class; empty for the default one.
func (k *Keeper) nameOf(class int64) string {
	if known := k.history.Load().Classes; class != DefaultClass && class <= int64(len(known)) {
		return known[class-1].Name
	}
	return ""
}

// Keep returns how long rows of a tenant in a class are kept: the longest that any process is configured to. Of a class that isn't configured any more, this
// process keeps them as long as it was configured last, or as the default one if that is longer.
func (k *Keeper) Keep(tenant string, class int64) Keep {
	all, name := *k.advertised.Load(), k.nameOf(class)
	keep := all[0].of(tenant, name)
	if _, configured := all[0].Classes[name]; name != "" && !configured {
		keep = keep.longest(k.history.Load().Classes[class-1].keep())
	}
	for i := range all[1:] {
		keep = keep.longest(all[1+i].of(tenant, name))
	}
	return keep
}

// Longest returns how long anything of a tenant is kept: rows that classes share are kept as long.
func (k *Keeper) Longest(tenant string) Keep {
	keep := k.Keep(tenant, DefaultClass)
	for class := int64(1); class < k.Classes(); class++ {
		keep = keep.longest(k.Keep(tenant, class))
	}
	return keep
}

// longestOfAll returns how long anything of any tenant is kept.
func (k *Keeper) longestOfAll() Keep {
	keep := k.Longest("")
	for _, a := range *k.advertised.Load() {
		for name := range a.Tenants {
			keep = keep.longest(k.Longest(name))
		}
	}
	return keep
}

// InForce returns the id of the list of classes that is in force at a time, milliseconds.
func (k *Keeper) InForce(t int64) string { return k.history.Load().inForce(t) }

// ClassesFrom returns when the retention classes that were configured last are in force; zero: they are.
func (k *Keeper) ClassesFrom() time.Time {
	if from := k.history.Load().newest().FromMS; from > k.env.Now().UnixMilli() {
		return Instant(from)
	}
	return time.Time{}
}

// Instant returns a time in milliseconds; zero for Never.
func Instant(ms int64) time.Time {
	if ms <= Never {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
