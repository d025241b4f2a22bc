package relabeling

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
)

// Live holds the rules that are in effect. It is safe for concurrent use.
type Live struct {
	table atomic.Pointer[Table]
	cache *droppedCache
	// setting must be held while the table is replaced. deleteAliases deletes the store's aliases of the selected
	// tenants.
	setting       sync.Mutex
	deleteAliases func(of func(tenant string) bool)

	samples, exemplars, rejected *prometheus.Desc
}

// NewLive returns a Live without rules and registers its metrics with r.
func NewLive(r prometheus.Registerer) *Live {
	labels := []string{"rules", "rule"}
	l := &Live{
		cache:         newDroppedCache(maxDropped),
		deleteAliases: func(func(string) bool) {},
		samples: prometheus.NewDesc("cassia_relabel_dropped_samples_total",
			"Samples and histograms dropped by relabeling rules. rules is the tenant that the rules belong to, or "+
				"empty for rules of all tenants; rule is the number of the rule, from 1.", labels, nil),
		exemplars: prometheus.NewDesc("cassia_relabel_dropped_exemplars_total",
			"Exemplars of series dropped by relabeling rules. rules is the tenant that the rules belong to, or empty "+
				"for rules of all tenants; rule is the number of the rule, from 1.", labels, nil),
		rejected: prometheus.NewDesc("cassia_relabel_refused_total",
			"Samples, histograms and exemplars rejected because a relabeling rule made the labels of their series "+
				"too long. rules is the tenant that the rules belong to, or empty for rules of all tenants; rule is "+
				"the number of the rule, from 1.",
			labels, nil),
	}
	if r != nil {
		r.MustRegister(l)
	}
	return l
}

// OnChange sets the function that is called after rules have changed. The function must delete the store's aliases of
// the selected tenants, which were made under the former rules and are no longer used.
func (l *Live) OnChange(forget func(of func(tenant string) bool)) {
	l.setting.Lock()
	defer l.setting.Unlock()
	l.deleteAliases = forget
}

// Set puts a table into effect for requests that start from now on. The counters of unchanged rules continue.
func (l *Live) Set(t *Table) {
	l.setting.Lock()
	defer l.setting.Unlock()
	before := l.table.Load()
	if before != nil {
		if t.everybody.isSame(before.everybody) {
			t.everybody = before.everybody
		}
		for name, r := range t.tenants {
			if r.isSame(before.tenants[name]) {
				t.tenants[name] = before.tenants[name]
			}
		}
	}
	l.table.Store(t)
	l.deleteAliases(func(tenant string) bool { return before != nil && before.RulesOf(tenant) != t.RulesOf(tenant) })
}

// WrapBatch applies a tenant's rules to a batch. It returns b itself if the tenant has no rules.
func (l *Live) WrapBatch(tenant string, b *storage.Batch) adapter.Batch {
	r := l.table.Load().RulesOf(tenant)
	if r == nil {
		return b
	}
	b.UseAliases(r.space)
	return &batch{Batch: b, rules: r, cache: l.cache, counts: r.countsOf(tenant)}
}

// Metadata returns the family under which the metadata of a family is stored; ok is false if rules drop it.
func (l *Live) Metadata(tenant, family, kind string) (as string, ok bool) {
	r := l.table.Load().RulesOf(tenant)
	if r == nil {
		return family, true
	}
	return r.metadata(family, kind)
}

// HasRules reports whether rules apply to a tenant.
func (l *Live) HasRules(tenant string) bool { return l.table.Load().RulesOf(tenant) != nil }

// Rule is the part of a rule's state that is shown to a tenant.
type Rule struct {
	// Number starts at 1. Text is the rule as YAML.
	Number int    `json:"number"`
	Text   string `json:"text"`
	// Samples and Exemplars count this tenant's drops since the rules took effect.
	Samples   int64 `json:"dropped_samples"`
	Exemplars int64 `json:"dropped_exemplars"`
}

// Status is the part of the state of rules that is shown to a tenant to which they apply.
type Status struct {
	// Own is true if the tenant has rules of its own, instead of the default rules.
	Own   bool   `json:"own"`
	Rules []Rule `json:"rules"`
}

// Status returns the state of a tenant's rules.
func (l *Live) Status(tenant string) Status {
	s := Status{Rules: []Rule{}}
	t := l.table.Load()
	if t == nil {
		return s
	}
	_, s.Own = t.tenants[tenant]
	r := t.RulesOf(tenant)
	if r == nil {
		return s
	}
	r.mu.Lock()
	c := r.counts[tenant]
	r.mu.Unlock()
	for i, text := range r.texts {
		one := Rule{Number: i + 1, Text: text}
		if c != nil {
			one.Samples, one.Exemplars = c.samples[i].Load(), c.exemplars[i].Load()
		}
		s.Rules = append(s.Rules, one)
	}
	return s
}

// Describe implements prometheus.Collector.
func (l *Live) Describe(to chan<- *prometheus.Desc) {
	to <- l.samples
	to <- l.exemplars
	to <- l.rejected
}

// Collect implements prometheus.Collector.
func (l *Live) Collect(to chan<- prometheus.Metric) {
	for _, r := range l.table.Load().allRules() {
		for i := range r.configs {
			t, number := r.total(i), strconv.Itoa(i+1)
			to <- prometheus.MustNewConstMetric(l.samples, prometheus.CounterValue, float64(t.samples), r.owner, number)
			to <- prometheus.MustNewConstMetric(
				l.exemplars, prometheus.CounterValue, float64(t.exemplars), r.owner, number,
			)
			to <- prometheus.MustNewConstMetric(
				l.rejected, prometheus.CounterValue, float64(t.rejected), r.owner, number,
			)
		}
	}
}
