package index

import (
	"context"
	"math/rand/v2"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/meter"
)

// matchesPerLook is the average number of matches of regular expressions between calls of the context's meter.
const matchesPerLook = 16

// Matching matches label values for one read. A match of a regular expression may take milliseconds, so the context is
// checked before each of them, and a read that matches for long waits for its turn among large reads. After the context
// has ended, regular expressions match nothing, negated or not. Results are then incomplete: the caller must check the
// context before it uses them.
type Matching struct {
	ctx  context.Context
	done <-chan struct{}
}

// NewMatching returns a Matching for one read.
func NewMatching(ctx context.Context) Matching { return Matching{ctx, ctx.Done()} }

// Matches reports whether a value matches.
func (x *Matching) Matches(m *labels.Matcher, value string) bool {
	if isRegexp(m) {
		if rand.Uint32N(matchesPerLook) == 0 {
			meter.Working(x.ctx)
		}
		if x.isOver() {
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

// isOver reports whether the context has ended.
func (x *Matching) isOver() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

func isRegexp(m *labels.Matcher) bool {
	return m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp
}
