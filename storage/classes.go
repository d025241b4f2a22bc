package storage

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Keep is how long rows are kept, by resolution; 0: for ever.
type Keep struct{ Raw, FiveMinutes, OneHour time.Duration }

// Of returns how long rows of a resolution are kept.
func (k Keep) Of(res rollup.Resolution) time.Duration {
	switch res {
	case rollup.FiveMinutes:
		return k.FiveMinutes
	case rollup.OneHour:
		return k.OneHour
	default:
		return k.Raw
	}
}

func (k Keep) check(slot time.Duration) error {
	switch {
	case k.Raw < 0 || k.Raw > 0 && k.Raw < slot:
		return fmt.Errorf("storage: the retention %v is shorter than a slot of %v", k.Raw, slot)
	case shorter(k.FiveMinutes, k.Raw) || shorter(k.OneHour, k.FiveMinutes):
		return fmt.Errorf("storage: 5m rollups must be kept at least as long as raw samples (%v), and 1h rollups at least as long as 5m rollups (%v), not %v and %v",
			k.Raw, k.FiveMinutes, k.FiveMinutes, k.OneHour)
	}
	return nil
}

// shorter reports whether one retention is shorter than another; 0 is for ever.
func shorter(a, b time.Duration) bool { return a != 0 && (b == 0 || a < b) }

func longer(a, b time.Duration) time.Duration {
	if shorter(a, b) {
		return b
	}
	return a
}

// longest returns the longer retention of both at each resolution.
func (k Keep) longest(other Keep) Keep {
	return Keep{longer(k.Raw, other.Raw), longer(k.FiveMinutes, other.FiveMinutes), longer(k.OneHour, other.OneHour)}
}

// Class is a retention class: series that are kept otherwise than their tenant's others.
type Class struct {
	Name string
	// Match selects its series: those that pass all matchers of one of the lists.
	Match [][]*labels.Matcher
	Keep
}

// Matches reports whether the class may take a series. Of several classes that match a series, the first one applies.
func (c *Class) Matches(ls labels.Labels) bool { return matchesAny(c.Match, ls) }

func matchesAny(match [][]*labels.Matcher, ls labels.Labels) bool {
	return slices.ContainsFunc(match, func(ms []*labels.Matcher) bool { return format.MatchesAll(ls, ms) })
}

const (
	// classDefault is the class of the series that no other takes.
	classDefault = 0
	// MaxClasses is how many classes there can be besides the default one.
	MaxClasses = 7
	// maxKnownClasses bounds how many names of classes a store can ever have had, for each has a number for ever.
	// Readers look into all of them.
	maxKnownClasses = 31
)

// knownClass is a class that the store has, or had. Its number is its place among them, from 1 on.
type knownClass struct {
	Name string `json:"name"`
	// RawMS, FiveMinutesMS and OneHourMS are how long its rows were to be kept last, so that they aren't dropped
	// early when its name is left out.
	RawMS         int64 `json:"raw_ms"`
	FiveMinutesMS int64 `json:"5m_ms"`
	OneHourMS     int64 `json:"1h_ms"`
}

func (k *knownClass) set(keep Keep) {
	k.RawMS, k.FiveMinutesMS, k.OneHourMS = keep.Raw.Milliseconds(), keep.FiveMinutes.Milliseconds(), keep.OneHour.Milliseconds()
}

func (k *knownClass) keep() Keep {
	return Keep{time.Duration(k.RawMS) * time.Millisecond, time.Duration(k.FiveMinutesMS) * time.Millisecond, time.Duration(k.OneHourMS) * time.Millisecond}
}

// addClasses returns the known classes with those that are configured.
func addClasses(known []knownClass, configured []Class) (all []knownClass, err error) {
	all = slices.Clone(known)
	for i := range configured {
		c := &configured[i]
		at := numberOf(all, c.Name) - 1
		if at < 0 {
			at = int64(len(all))
			all = append(all, knownClass{Name: c.Name})
		}
		all[at].set(c.Keep)
	}
	if len(all) > maxKnownClasses {
		return nil, fmt.Errorf("%w: the store would have %d class names; the maximum is %d. Reuse earlier names", ErrBadClasses, len(all), maxKnownClasses)
	}
	return all, nil
}

// numberOf returns the number of a class; 0: it isn't known.
func numberOf(known []knownClass, name string) int64 {
	return int64(slices.IndexFunc(known, func(k knownClass) bool { return k.Name == name })) + 1
}

// ErrBadClasses means that retention classes contradict each other, or are too many.
var ErrBadClasses = errors.New("storage: invalid retention classes")

func checkClasses(list []Class, tenants map[string]Keep, slot time.Duration) error {
	if len(list) > MaxClasses {
		return fmt.Errorf("%w: %d classes; the maximum is %d", ErrBadClasses, len(list), MaxClasses)
	}
	seen := map[string]bool{}
	for i := range list {
		c := &list[i]
		switch {
		case c.Name == "":
			return fmt.Errorf("%w: a class has no name", ErrBadClasses)
		case seen[c.Name]:
			return fmt.Errorf("%w: the name %q is used twice", ErrBadClasses, c.Name)
		case len(c.Match) == 0:
			return fmt.Errorf("%w: %q matches nothing", ErrBadClasses, c.Name)
		}
		seen[c.Name] = true
		if err := c.check(slot); err != nil {
			return fmt.Errorf("%w: %q: %w", ErrBadClasses, c.Name, err)
		}
	}
	for name, keep := range tenants {
		if err := keep.check(slot); err != nil {
			return fmt.Errorf("storage: retention of tenant %q: %w", name, err)
		}
	}
	return nil
}

// classes are the retention classes, and how long each keeps its rows. A class is the same for all tenants;
// a tenant's own retention is that of its series in the default class.
type classes struct {
	base       Keep
	tenants    map[string]Keep
	configured []Class
	known      atomic.Pointer[[]knownClass]
	// lists is the history of the lists in force, read those that were read, and told the newest when that was logged.
	lists atomic.Pointer[[]listFrom]
	// own is the list of this process' classes; nil: it adds none to the store.
	own  *classList
	read listMemory
	told atomic.Pointer[listFrom]
	// others are what other processes of a shared store are configured to keep.
	others atomic.Pointer[[]statedKeep]
}

func newClasses(o *Options, have *settings) *classes {
	c := &classes{base: o.keep(), tenants: o.TenantRetention, configured: o.Classes}
	c.learn(have)
	return c
}

// learn takes what another process has added.
func (c *classes) learn(have *settings) {
	c.known.Store(&have.Classes)
	c.lists.Store(&have.Lists)
}

// count is how many classes there may be rows in, with the default one.
func (c *classes) count() int64 { return int64(len(*c.known.Load())) + 1 }

// nameOf returns the name of a class; empty for the default one.
func (c *classes) nameOf(class int64) string {
	if known := *c.known.Load(); class != classDefault && class <= int64(len(known)) {
		return known[class-1].Name
	}
	return ""
}

// ClassNames lists the retention classes that the store has, or had.
func (s *Store) ClassNames() (names []string) {
	for _, k := range *s.classes.known.Load() {
		names = append(names, k.Name)
	}
	return names
}

// keep returns how long rows of a tenant in a class are kept: the longest that any process is configured to.
func (c *classes) keep(tenant string, class int64) Keep {
	keep, others := c.ownKeep(tenant, class), c.others.Load()
	if others == nil {
		return keep
	}
	name := c.nameOf(class)
	for i := range *others {
		keep = keep.longest((*others)[i].keep(tenant, name))
	}
	return keep
}

// ownKeep returns how long this process is configured to keep them. Of a class that isn't configured any more: as long
// as it was configured last, or as the default one if that is longer.
func (c *classes) ownKeep(tenant string, class int64) Keep {
	usual := c.base
	if own, ok := c.tenants[tenant]; ok {
		usual = own
	}
	known := *c.known.Load()
	if class == classDefault || class > int64(len(known)) {
		return usual
	}
	k := &known[class-1]
	if i := slices.IndexFunc(c.configured, func(x Class) bool { return x.Name == k.Name }); i >= 0 {
		return c.configured[i].Keep
	}
	return usual.longest(k.keep())
}

// longest returns how long anything of a tenant is kept: what isn't of one class lives as long.
func (c *classes) longest(tenant string) Keep {
	keep := c.keep(tenant, classDefault)
	for class := int64(1); class < c.count(); class++ {
		keep = keep.longest(c.keep(tenant, class))
	}
	return keep
}

// longestOfAll returns how long anything is kept, whose ever it is.
func (c *classes) longestOfAll() Keep {
	keep := c.longest("")
	for name := range c.tenants {
		keep = keep.longest(c.longest(name))
	}
	if others := c.others.Load(); others != nil {
		for i := range *others {
			for name := range (*others)[i].Tenants {
				keep = keep.longest(c.longest(name))
			}
		}
	}
	return keep
}

// RetentionOf is how long a tenant's series are kept: those in no class, and those in one that is kept the longest.
func (s *Store) RetentionOf(tenant string) (usual, longest Keep) {
	return s.classes.keep(tenant, classDefault), s.classes.longest(tenant)
}
