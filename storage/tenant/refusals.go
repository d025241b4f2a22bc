package tenant

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// maxCounted bounds the tenants that the metric names: the first that come to a limit.
	maxCounted = 200
	// otherTenants is the label of all others; no tenant can have that name.
	otherTenants = "other tenants"
)

// refusals counts refusals, by tenant and limit.
type refusals struct {
	counts *prometheus.CounterVec

	mu    sync.Mutex
	named map[string]bool
}

func newRefusals(reg prometheus.Registerer) *refusals {
	return &refusals{
		named: map[string]bool{},
		counts: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "cassia_tenant_limit_refused_total",
			Help: "Samples, series, requests and queries rejected because of a tenant limit, by the name of the limit in --limits.file. " +
				"Every attempt counts. A request rejected unread by a rate limit counts as 1 sample.",
		}, []string{"tenant", "limit"}),
	}
}

func (r *refusals) count(name, limit string, n int) {
	r.mu.Lock()
	switch {
	case r.named[name]:
	case len(r.named) < maxCounted:
		r.named[name] = true
	default:
		name = otherTenants
	}
	r.mu.Unlock()
	r.counts.WithLabelValues(name, limit).Add(float64(n))
}
