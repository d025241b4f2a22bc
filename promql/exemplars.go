package promql

import (
	"context"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Exemplars implements the exemplar queries of Prometheus' HTTP API. The tenant is read from the context.
type Exemplars struct{ store *storage.Store }

// NewExemplars returns an ExemplarQueryable that reads store. It doesn't close the store.
func NewExemplars(store *storage.Store) *Exemplars { return &Exemplars{store} }

var _ promstorage.ExemplarQueryable = (*Exemplars)(nil)

// ExemplarQuerier implements promstorage.ExemplarQueryable. It returns the errors of storage.Store.Ready.
func (e *Exemplars) ExemplarQuerier(ctx context.Context) (promstorage.ExemplarQuerier, error) {
	if err := e.store.Ready(); err != nil {
		return nil, asPrometheus(err)
	}
	return exemplarQuerier{ctx, e.store}, nil
}

// exemplarQuerier holds the context of its request because Select has no context parameter.
type exemplarQuerier struct {
	ctx   context.Context
	store *storage.Store
}

// Select implements promstorage.ExemplarQuerier: start and end are milliseconds, both included.
func (q exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	if all := tenant.NamesFromContext(q.ctx); len(all) > 1 {
		return q.selectInTenants(all, start, end, matchers)
	}
	found, err := q.store.Exemplars(q.ctx, tenant.FromContext(q.ctx), start, end, matchers...)
	return found, asPrometheus(err)
}
