package retention

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
)

// Class is a retention class: a set of series with their own retention.
type Class struct {
	Name string
	// Match selects the series of the class: a series must match all matchers of at least one list.
	Match [][]*labels.Matcher
	Durations
}

// Matches reports whether a series matches the class. If multiple classes match a series, the first one applies.
func (c *Class) Matches(ls labels.Labels) bool { return matchesAny(c.Match, ls) }

func matchesAny(match [][]*labels.Matcher, ls labels.Labels) bool {
	return slices.ContainsFunc(match, func(ms []*labels.Matcher) bool { return format.MatchesAll(ls, ms) })
}

const (
	// DefaultClass is the class of series that no other class matches.
	DefaultClass = 0
	// MaxClasses is the maximum number of configured classes, excluding the default class.
	MaxClasses = 7
	// maxKnownClasses is the maximum number of class names that a store can ever have. Each name has a number
	// permanently, and readers read the rows of all classes.
	maxKnownClasses = 31
)

// KnownClass is a class that may have rows. Its number is its position in the list of known classes, starting at 1.
type KnownClass struct {
	Name string `json:"name"`
	// KeptMS is the last configured retention of the class. It applies when the class is removed from the
	// configuration, so that its rows aren't dropped early.
	KeptMS
}

// ErrBadClasses means that retention classes contradict each other, or that there are too many.
var ErrBadClasses = errors.New("storage: invalid retention classes")

// checkClasses checks the configured classes.
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
