package index

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
)

// Matching matches label values for one read. A match of a regular expression may take milliseconds, so the context is checked before each of
// them. After the context has ended regular expressions match nothing, negated or not: results are then incomplete, and the caller checks the
// context before it uses them.
type Matching struct {
	ctx  context.Context
	done <-chan struct{}
}

// NewMatching returns the matching of a read.
func NewMatching(ctx context.Context) Matching { return Matching{ctx, ctx.Done()} }

// Matches reports whether a value matches.
func (x *Matching) Matches(m *labels.Matcher, value string) bool {
	return (!isRegexp(m) || !x.isOver()) && m.Matches(value)
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
