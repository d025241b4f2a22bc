package promql

import (
	"context"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Exemplars lets Prometheus' HTTP API read the exemplars of a store. The tenant is the context's.
type Exemplars struct{ store *storage.Store }

// NewExemplars returns an ExemplarQueryable over store, which stays the caller's.
func NewExemplars(store *storage.Store) *Exemplars { return &Exemplars{store} }

var _ promstorage.ExemplarQueryable = (*Exemplars)(nil)

// ExemplarQuerier implements promstorage.ExemplarQueryable. Its errors are those of storage.Store.Ready.
func (e *Exemplars) ExemplarQuerier(ctx context.Context) (promstorage.ExemplarQuerier, error) {
	if err := e.store.Ready(); err != nil {
		return nil, asPrometheus(err)
	}
	return exemplarQuerier{ctx, e.store}, nil
}

// exemplarQuerier carries the context of its request, for its interface has no other place for it.
type exemplarQuerier struct {
	ctx   context.Context
	store *storage.Store
}

// Select implements promstorage.ExemplarQuerier: start and end are milliseconds, both included.
func (q exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	if all := tenant.All(q.ctx); len(all) > 1 {
		return q.selectOf(all, start, end, matchers)
	}
	found, err := q.store.Exemplars(q.ctx, tenant.From(q.ctx), start, end, matchers...)
	return found, asPrometheus(err)
}
