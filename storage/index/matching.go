package index

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/meter"
)

// matchesPerLook is about after how many matches of regular expressions the context is checked, and its meter called.
const matchesPerLook = 16

// Matching matches label values for one read. A match of a regular expression may take milliseconds, so the context is checked every few
// matches. A read that matches for long waits for its turn among large ones. Once the context has ended, regular expressions match nothing, negated or not: results are
// then incomplete, and the caller checks the context before it uses them. It is safe for concurrent use.
type Matching struct {
	ctx context.Context
	// over is set once the context was seen to have ended.
	over *atomic.Bool
}

// NewMatching returns the matching of a read.
func NewMatching(ctx context.Context) Matching {
	x := Matching{ctx, new(atomic.Bool)}
	x.over.Store(ctx.Err() != nil)
	return x
}

// Matches reports whether a value matches.
func (x *Matching) Matches(m *labels.Matcher, value string) bool {
	if isRegexp(m) && (x.over.Load() || rand.Uint32N(matchesPerLook) == 0 && x.look()) {
		return false
	}
	return m.Matches(value)
}

// look calls the meter, and reports whether the context has ended.
func (x *Matching) look() bool {
	meter.Working(x.ctx)
	if x.ctx.Err() == nil {
		return false
	}
	x.over.Store(true)
	return true
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

func isRegexp(m *labels.Matcher) bool {
	return m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp
}
