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

// Configured is the retention configuration of a process.
type Configured struct {
	// All is the retention of series that match no class, for tenants without a retention in Tenants.
	All Durations
	// Tenants holds the retention of single tenants, for their series that match no class.
	Tenants map[string]Durations
	// Classes apply to series of all tenants. The first class that matches a series applies to it.
	Classes []Class
}

// Check returns an error if the configuration contradicts itself.
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

// Env connects a Keeper to its store.
type Env struct {
	Engine     engine.Engine
	Period     *format.Periods
	Clock      *membership.CheckedClock
	Configured Configured
	// AddsClasses is true if this process adds its classes to the store.
	AddsClasses bool
	// Shared is true if other processes may use the store. Expires is true if the engine expires rows, at the time
	// given in each write.
	Shared, Expires bool
	Now             func() time.Time
	Logger          *slog.Logger
	// Refresh reads the settings again, and calls Keeper.SetHistory.
	Refresh func(context.Context) error
	// Advertised calls f with the value that each other process advertises.
	Advertised func(ctx context.Context, f func(writer string, value []byte)) error
	// Corrupt counts and logs an unreadable row of a table.
	Corrupt func(*engine.Table, error)
	// Tenants lists the tenants with rows. Windows lists the windows between first and last in which a tenant may have
	// rows, in order.
	Tenants func(context.Context) ([]string, error)
	Windows func(ctx context.Context, tenant string, first, last int64) ([]int64, error)
	// Stands reports whether any window between first and last may have rows. It returns an error if it can't determine
	// this.
	Stands func(ctx context.Context, tenant string, first, last int64) (bool, error)
	// Written reports whether this process has written to a window. Holds reports whether the head contains samples of
	// the slots in a range.
	Written func(tenant string, window int64) bool
	Holds   func(from, to int64) bool
	// Samples estimates the number of raw samples of a class in some windows. It returns -1 if no estimate is possible.
	Samples func(ctx context.Context, tenant string, class int64, windows []int64) (int64, error)
}

// Keeper manages the retention classes of a store and their retention. A class has the same retention for all tenants.
// A tenant's own retention applies to its series in the default class.
type Keeper struct {
	env     Env
	history atomic.Pointer[ClassHistory]
	// advertised holds the retention of this process, followed by the retention of each other process of a shared
	// store.
	advertised atomic.Pointer[[]Advertised]
	// lists caches lists of classes. ownList is this process's list, or nil if the process adds no classes to the
	// store. logged is the newest list whose start was logged.
	lists   listMemory
	ownList *ClassList
	logged  atomic.Pointer[ListFrom]
	// boundaries caches the tenants' boundaries. expiries caches the expiries of windows.
	boundaries bounds.Map[string, *Boundaries]
	expiries   expiryMemory
}

// New returns a Keeper for a store with a history of classes.
func New(env Env, history ClassHistory) *Keeper {
	k := &Keeper{env: env}
	k.history.Store(&history)
	k.advertised.Store(&[]Advertised{env.Configured.advertised()})
	return k
}

// SetHistory replaces the history of classes after another process has changed it.
func (k *Keeper) SetHistory(history ClassHistory) {
	k.history.Store(&history)
	k.logLists()
}

// Expires reports whether the engine expires rows.
func (k *Keeper) Expires() bool { return k.env.Expires }

// DropsTogether reports whether all rows of a tenant in a window are dropped together. This is the case if there is
// only one class and the engine doesn't expire rows.
func (k *Keeper) DropsTogether() bool { return k.Classes() == 1 && !k.env.Expires }

// Classes returns the number of classes that may have rows, including the default class.
func (k *Keeper) Classes() int64 { return int64(len(k.history.Load().Classes)) + 1 }

// ClassNames lists the current and former retention classes of the store.
func (k *Keeper) ClassNames() (names []string) {
	for _, c := range k.history.Load().Classes {
		names = append(names, c.Name)
	}
	return names
}

// nameOf returns the name of a class, or "" for the default class.
func (k *Keeper) nameOf(class int64) string {
	if known := k.history.Load().Classes; class != DefaultClass && class <= int64(len(known)) {
		return known[class-1].Name
	}
	return ""
}

// RetentionOf returns the retention of a tenant's rows in a class: the longest that any process is configured with. For
// a class that is no longer configured, this process uses the longer of two retentions: the last retention configured
// for the class, and the retention of the default class.
func (k *Keeper) RetentionOf(tenant string, class int64) Durations {
	all, name := *k.advertised.Load(), k.nameOf(class)
	keep := all[0].durationsOf(tenant, name)
	if _, configured := all[0].Classes[name]; name != "" && !configured {
		keep = keep.longerOf(k.history.Load().Classes[class-1].durations())
	}
	for i := range all[1:] {
		keep = keep.longerOf(all[1+i].durationsOf(tenant, name))
	}
	return keep
}

// LongestRetention returns the longest retention among a tenant's classes. It applies to rows that classes share.
func (k *Keeper) LongestRetention(tenant string) Durations {
	keep := k.RetentionOf(tenant, DefaultClass)
	for class := int64(1); class < k.Classes(); class++ {
		keep = keep.longerOf(k.RetentionOf(tenant, class))
	}
	return keep
}

// longestOfTenants returns the longest retention among all classes of all tenants.
func (k *Keeper) longestOfTenants() Durations {
	keep := k.LongestRetention("")
	for _, a := range *k.advertised.Load() {
		for name := range a.Tenants {
			keep = keep.longerOf(k.LongestRetention(name))
		}
	}
	return keep
}

// ListInForce returns the id of the list of classes that is in force at a time, in milliseconds.
func (k *Keeper) ListInForce(t int64) string { return k.history.Load().inForce(t) }

// ClassesFrom returns the time at which the last configured retention classes take effect, or zero if they already
// have.
func (k *Keeper) ClassesFrom() time.Time {
	if from := k.history.Load().newest().FromMS; from > k.env.Now().UnixMilli() {
		return timeOf(from)
	}
	return time.Time{}
}

// timeOf converts milliseconds to a time. It returns the zero time for Never.
func timeOf(ms int64) time.Time {
	if ms <= Never {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
