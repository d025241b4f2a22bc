package storage

import (
	"github.com/prometheus/prometheus/model/labels"
)

func matchesAll(ls labels.Labels, ms []*labels.Matcher) bool {
	for _, m := range ms {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// nameMatches says whether a metric's name passes the matchers of names.
func nameMatches(ms []*labels.Matcher, name string) bool {
	for _, m := range ms {
		if m.Name == labels.MetricName && !m.Matches(name) {
			return false
		}
	}
	return true
}
