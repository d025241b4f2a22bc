package format

import "github.com/prometheus/prometheus/model/labels"

// MatchesAll reports whether labels match all matchers.
func MatchesAll(ls labels.Labels, ms []*labels.Matcher) bool {
	for _, m := range ms {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// MatchesName reports whether a metric's name matches all matchers of names.
func MatchesName(ms []*labels.Matcher, name string) bool {
	for _, m := range ms {
		if m.Name == labels.MetricName && !m.Matches(name) {
			return false
		}
	}
	return true
}

// EqualName returns the metric's name if a matcher selects exactly one name.
func EqualName(ms []*labels.Matcher) (string, bool) {
	for _, m := range ms {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			return m.Value, true
		}
	}
	return "", false
}
