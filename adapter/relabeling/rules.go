package relabeling

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// noRule is returned in place of a rule's number if no rule drops the series.
const noRule = -1

// maxCounted bounds the tenants that are counted separately by Rules.
const maxCounted = 10_000

// Rules are the rules of a tenant, or the default rules, in order. Rule numbers start at 0 internally and at 1 in
// texts.
type Rules struct {
	owner   string
	configs []*relabel.Config
	texts   []string
	// space identifies the aliases of series to which these rules were applied: equal rules have the same space.
	space uint64

	mu     sync.Mutex
	counts map[string]*counts // by tenant
	// others counts the tenants beyond maxCounted.
	others counts
}

// counts are the numbers of dropped samples and exemplars, and of rejected series, by rule.
type counts struct{ samples, exemplars, rejected []atomic.Int64 }

func newCounts(n int) *counts {
	return &counts{
		samples: make([]atomic.Int64, n), exemplars: make([]atomic.Int64, n), rejected: make([]atomic.Int64, n),
	}
}

func (c *counts) addTo(t *ruleTotal, rule int) {
	t.samples += c.samples[rule].Load()
	t.exemplars += c.exemplars[rule].Load()
	t.rejected += c.rejected[rule].Load()
}

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.configs) }

// isSame reports whether both have the same rules and owner.
func (r *Rules) isSame(other *Rules) bool {
	return other != nil && r.owner == other.owner && r.space == other.space && len(r.texts) == len(other.texts) &&
		strings.Join(r.texts, "\x00") == strings.Join(other.texts, "\x00")
}

// countsOf returns the counters of a tenant.
func (r *Rules) countsOf(tenant string) *counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts[tenant]
	if c != nil {
		return c
	}
	if len(r.counts) >= maxCounted {
		if r.others.samples == nil {
			r.others = *newCounts(len(r.configs))
		}
		return &r.others
	}
	if r.counts == nil {
		r.counts = map[string]*counts{}
	}
	c = newCounts(len(r.configs))
	r.counts[strings.Clone(tenant)] = c
	return c
}

// ruleTotal holds the counts of one rule.
type ruleTotal struct{ samples, exemplars, rejected int64 }

// total returns the counts of a rule, summed over all tenants.
func (r *Rules) total(rule int) (t ruleTotal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.counts {
		c.addTo(&t, rule)
	}
	if r.others.samples != nil {
		r.others.addTo(&t, rule)
	}
	return t
}

// applyRules returns the labels that result from the rules, or the number of the rule that drops the series. ls must
// not have empty values. As in Prometheus, a series that loses all labels is dropped; rule is then the first rule after
// which no label was left. An error is a *storage.LabelError, and rule is then the rule that caused it.
func (r *Rules) applyRules(ls labels.Labels, b *labels.Builder) (out labels.Labels, rule int, err error) {
	b.Reset(ls)
	a := newRuleInput(b)
	for i, c := range r.configs {
		if keep, err := a.applyRule(i+1, c); err != nil || !keep {
			return labels.EmptyLabels(), i, err
		}
	}
	out = b.Labels()
	if !out.IsEmpty() || ls.IsEmpty() {
		return out, noRule, nil
	}
	b.Reset(ls)
	for i, c := range r.configs {
		relabel.ProcessBuilder(b, c)
		if b.Labels().IsEmpty() {
			// Later rules may have added labels and removed them again; this rule was the first that left none.
			return out, i, nil
		}
	}
	return out, len(r.configs) - 1, nil
}

// metadata returns the family under which the metadata of a family is stored; ok is false if the rules drop it.
// Metadata has no labels except the name, so only rules that read nothing else apply to it. Rules are applied to the
// names that the family's series have.
func (r *Rules) metadata(family, kind string) (string, bool) {
	for _, ending := range endingsOf(kind) {
		name, ok := r.renameFamily(family + ending)
		if !ok {
			continue
		}
		if shorter, cut := strings.CutSuffix(name, ending); cut && shorter != "" {
			return shorter, true
		}
		return name, true
	}
	return "", false
}

// endingsOf lists the suffixes of the names of a family's series. The _total of a counter's series may be missing from
// its family.
func endingsOf(kind string) []string {
	switch kind {
	case "histogram", "gaugehistogram":
		return []string{"", "_bucket", "_sum", "_count"}
	case "summary":
		return []string{"", "_sum", "_count"}
	case "counter":
		return []string{"_total", ""}
	}
	return []string{""}
}

// renameFamily applies the rules that read only the name.
func (r *Rules) renameFamily(name string) (string, bool) {
	b := labels.NewBuilder(labels.FromStrings(labels.MetricName, name))
	a := newRuleInput(b)
	for i, c := range r.configs {
		switch {
		case len(c.SourceLabels) != 1 || string(c.SourceLabels[0]) != labels.MetricName:
			continue
		case c.Action == relabel.Drop || c.Action == relabel.Keep:
		case c.TargetLabel != labels.MetricName || c.Action == relabel.DropEqual || c.Action == relabel.KeepEqual:
			continue
		}
		if keep, err := a.applyRule(i+1, c); err != nil || !keep { // series of that name are rejected as well
			return "", false
		}
	}
	name = b.Get(labels.MetricName)
	return name, name != ""
}
