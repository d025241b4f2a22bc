package retention

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
)

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
	// DefaultClass is the class of the series that no other takes.
	DefaultClass = 0
	// MaxClasses is how many classes there can be besides the default one.
	MaxClasses = 7
	// maxKnownClasses bounds how many names of classes a store can ever have had, for each has a number forever. Readers look into all of them.
	maxKnownClasses = 31
)

// KnownClass is a class that rows may be in. Its number is its position among them, from 1 on.
type KnownClass struct {
	Name string `json:"name"`
	// KeptMS is how long its rows were to be kept last, so that they aren't dropped early when its name is left out.
	KeptMS
}

// ErrBadClasses means that retention classes contradict each other, or are too many.
var ErrBadClasses = errors.New("storage: invalid retention classes")

// checkClasses checks the classes that are configured.
func checkClasses(list []Class, slot time.Duration) error {
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
		if err := c.Check(slot); err != nil {
			return fmt.Errorf("%w: %q: %w", ErrBadClasses, c.Name, err)
		}
	}
	return nil
}
