package index

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/meter"
)

// workPerLook is the number of bytes that regular expressions match between two checks of the context. A match counts as
// matchWork bytes more than its value has.
const workPerLook, matchWork = 4096, 16

// Matching matches label values for one read. A match of a regular expression may take milliseconds, so the context is
// checked every few matches, and a read that matches for long waits for its turn among large reads. When the context has
// ended, regular expressions match nothing, negated or not. Results are then incomplete: the caller must check the
// context before it uses them. It isn't safe for concurrent use.
type Matching struct {
	ctx  context.Context
	done <-chan struct{}
	// left is the number of bytes until the next check. isOver is set if the context had ended at the last one.
	left   int
	isOver bool
}

// NewMatching returns a Matching for one read.
func NewMatching(ctx context.Context) Matching { return Matching{ctx: ctx, done: ctx.Done()} }

// Matches reports whether a value matches.
func (x *Matching) Matches(m *labels.Matcher, value string) bool {
	if isRegexp(m) {
		if x.left -= len(value) + matchWork; x.left <= 0 {
			x.look()
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

// MatchesName reports whether a metric's name matches all matchers of names.
func (x *Matching) MatchesName(ms []*labels.Matcher, name string) bool {
	for _, m := range ms {
		if m.Name == labels.MetricName && !x.Matches(m, name) {
			return false
		}
	}
	return true
}

// look calls the context's meter, and checks whether the context has ended.
func (x *Matching) look() {
	meter.Working(x.ctx)
	x.left = workPerLook
	select {
	case <-x.done:
		x.isOver = true
	default:
	}
}

func isRegexp(m *labels.Matcher) bool {
	return m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp
}
