package format

import (
	"github.com/prometheus/prometheus/model/labels"
)

func MatchesAll(ls labels.Labels, ms []*labels.Matcher) bool {
	for _, m := range ms {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// MatchesName says whether a metric's name passes the matchers of names.
func MatchesName(ms []*labels.Matcher, name string) bool {
	for _, m := range ms {
		if m.Name == labels.MetricName && !m.Matches(name) {
			return false
		}
	}
	return true
}
