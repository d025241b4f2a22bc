package relabeling

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// kept is what stands for the number of a rule where none drops a series.
const kept = -1

// maxCounted bounds the tenants for which Rules count apart.
const maxCounted = 10_000

// Rules are the rules of a tenant, or of everybody, in order. Their numbers begin at 0 here and at 1 where people see them.
type Rules struct {
	owner   string
	configs []*relabel.Config
	texts   []string
	// space is that of the aliases of series that these rules have seen: the same rules have the same one.
	space uint64

	mu     sync.Mutex
	counts map[string]*counts // by tenant
	// others counts for tenants beyond maxCounted.
	others counts
}

// counts are what rules have dropped, by rule, and how often a series was refused because of one.
type counts struct{ samples, exemplars, refused []atomic.Int64 }

func newCounts(n int) *counts {
	return &counts{samples: make([]atomic.Int64, n), exemplars: make([]atomic.Int64, n), refused: make([]atomic.Int64, n)}
}

func (c *counts) addTo(t *total, rule int) {
	t.samples += c.samples[rule].Load()
	t.exemplars += c.exemplars[rule].Load()
	t.refused += c.refused[rule].Load()
}

// Len returns how many rules there are.
func (r *Rules) Len() int { return len(r.configs) }

// same reports whether both do the same, for the same owner.
func (r *Rules) same(other *Rules) bool {
	return other != nil && r.owner == other.owner && r.space == other.space && len(r.texts) == len(other.texts) &&
		strings.Join(r.texts, "\x00") == strings.Join(other.texts, "\x00")
}

// countsOf returns what counts for a tenant.
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

// total is what a rule has dropped and refused.
type total struct{ samples, exemplars, refused int64 }

// total returns what a rule has dropped and refused of all tenants.
func (r *Rules) total(rule int) (t total) {
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

// apply returns the labels that the rules make of others, which have no empty values, or the number of the rule that drops
// the series. A series without any label is dropped, by the rule that took the last one, as in Prometheus. An error is a
// *storage.LabelError, and rule the one because of which the series is refused.
func (r *Rules) apply(ls labels.Labels, b *labels.Builder) (out labels.Labels, rule int, err error) {
	b.Reset(ls)
	a := newApplied(b)
	for i, c := range r.configs {
		if keep, err := a.process(i+1, c); err != nil || !keep {
			return labels.EmptyLabels(), i, err
		}
	}
	out = b.Labels()
	if !out.IsEmpty() || ls.IsEmpty() {
		return out, kept, nil
	}
	b.Reset(ls)
	for i, c := range r.configs {
		relabel.ProcessBuilder(b, c)
		if b.Labels().IsEmpty() {
			return out, i, nil // Later rules may have added labels and removed them again: this one was the first.
		}
	}
	return out, len(r.configs) - 1, nil
}

// metadata returns the family of which metadata is to be stored as of another one; ok is false where the rules drop it.
// Metadata has no labels but a name, so only rules that read nothing else apply to it. Rules apply to the names that
// series of the family have.
func (r *Rules) metadata(family, kind string) (string, bool) {
	for _, ending := range endingsOf(kind) {
		name, ok := r.rename(family + ending)
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

// endingsOf lists what the names of a family's series may end in. A counter's family may lack the _total of its series.
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

// rename applies the rules that read only names.
func (r *Rules) rename(name string) (string, bool) {
	b := labels.NewBuilder(labels.FromStrings(labels.MetricName, name))
	a := newApplied(b)
	for i, c := range r.configs {
		switch {
		case len(c.SourceLabels) != 1 || string(c.SourceLabels[0]) != labels.MetricName:
			continue
		case c.Action == relabel.Drop || c.Action == relabel.Keep:
		case c.TargetLabel != labels.MetricName || c.Action == relabel.DropEqual || c.Action == relabel.KeepEqual:
			continue
		}
		if keep, err := a.process(i+1, c); err != nil || !keep { // Series of that name are refused, too.
			return "", false
		}
	}
	name = b.Get(labels.MetricName)
	return name, name != ""
}
