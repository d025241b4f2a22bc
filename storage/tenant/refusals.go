package tenant

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// maxCountedTenants is the max number of tenants with metrics of their own: the first tenants that reach a limit.
	maxCountedTenants = 200
	// otherTenants is the label for all other tenants. No tenant can have this name.
	otherTenants = "other tenants"
)

// refusals counts rejections by tenant and limit, and truncated label values by tenant.
type refusals struct {
	counts    *prometheus.CounterVec
	truncated *prometheus.CounterVec

	mu    sync.Mutex
	named map[string]bool
}

func newRefusals(reg prometheus.Registerer) *refusals {
	return &refusals{
		named: map[string]bool{},
		counts: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_tenant_limit_refused_total",
			Help: "Samples, series, requests and queries rejected because of a tenant limit, by the name of the " +
				"limit in --limits.file. Every attempt counts. A request rejected unread by a rate limit counts as 1 " +
				"sample.",
		}, []string{"tenant", "limit"}),
		truncated: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_tenant_label_values_truncated_total",
			Help: "Label values that were longer than the tenant's limit and were truncated. A series counts when it " +
				"enters the head, an OTLP resource attribute in every request. The log names the labels.",
		}, []string{"tenant"}),
	}
}

func (r *refusals) count(name, limit string, n int) {
	r.counts.WithLabelValues(r.label(name), limit).Add(float64(n))
}

// label returns the label value for a tenant in the metrics.
func (r *refusals) label(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.named[name]:
	case len(r.named) < maxCountedTenants:
		r.named[name] = true
	default:
		return otherTenants
	}
	return name
}
