package index

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/meter"
)

// workPerCheck is the number of bytes that regular expressions match between two checks of the context. Each match
// counts as matchWork bytes in addition to the bytes of its value.
const workPerCheck, matchWork = 4096, 16

// Matching matches label values for one read. A match of a regular expression may take milliseconds, so Matching checks
// the context every few matches, and lets other large reads take their turns. Once the context has ended, regular
// expressions match nothing, whether or not they are negated. Results are then incomplete: the caller must check the
// context before it uses them. Matching isn't safe for concurrent use.
type Matching struct {
	ctx  context.Context
	done <-chan struct{}
	// left is the number of bytes until the next check. isOver is true if the context had ended at the last check.
	left   int
	isOver bool
}

// NewMatching returns a Matching for one read.
func NewMatching(ctx context.Context) Matching { return Matching{ctx: ctx, done: ctx.Done()} }

// Matches reports whether a value matches.
func (x *Matching) Matches(m *labels.Matcher, value string) bool {
	if isRegexp(m) {
		if x.left -= len(value) + matchWork; x.left <= 0 {
			x.checkContext()
		}
		if x.isOver {
			return false
		}
	}
	return m.Matches(value)
}

// MatchesAll reports whether labels match all matchers.
func (x *Matching) MatchesAll(ls labels.Labels, ms []*labels.Matcher) bool {
	for _, m := range ms {
		if !x.Matches(m, ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// MatchesName reports whether a metric's name matches all of ms, which are matchers of __name__.
func (x *Matching) MatchesName(ms []*labels.Matcher, name string) bool {
	for _, m := range ms {
		if m.Name == labels.MetricName && !x.Matches(m, name) {
			return false
		}
	}
	return true
}

// checkContext calls the context's meter, and checks whether the context has ended.
func (x *Matching) checkContext() {
	meter.Working(x.ctx, nil)
	x.left = workPerCheck
	select {
	case <-x.done:
		x.isOver = true
	default:
	}
}

func isRegexp(m *labels.Matcher) bool {
	return m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp
}
