package promql

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/tenant"
)

// foundFragment holds the segments and the series of a fragment. Each tenant has its own segments, because tenants may
// have different retention:
//
//	segments   [ a: 1h ][ a: raw ][ b: raw         ]
//	series       a1       a1
//	             a2
//	                                b1
type foundFragment struct {
	segments []*segment
	series   []foundSeries
	short    resolution.Shortfall
	// uses count toward the tenants' limits. sizes are the numbers of series to add to the uses.
	uses  []*tenant.Use
	sizes []int
}

// saveUses returns a function that resets the uses to the values that they have now.
func (f *foundFragment) saveUses() (restore func()) {
	used := make([]tenant.Used, len(f.uses))
	for i, use := range f.uses {
		used[i] = use.Snapshot()
	}
	return func() {
		for i, use := range f.uses {
			use.Restore(used[i])
		}
	}
}

// countSeries adds the series to the uses of the tenants' limits.
func (f *foundFragment) countSeries() error {
	for i, use := range f.uses {
		if err := use.AddSeries(f.sizes[i]); err != nil {
			return err
		}
	}
	return nil
}

// findSeries chooses the resolutions of a fragment and finds its series for each of the query's tenants.
func (p *plan) findSeries(c candidate, stats *FragmentStats, warn func(error)) (*foundFragment, error) {
	stats.Segments, stats.Series = nil, 0
	all := &foundFragment{}
	tenants := tenant.NamesFromContext(p.ctx)
	if len(tenants) == 1 {
		return all, p.findInTenant(tenants[0], c.fragment, all, stats, warn)
	}
	tenants, matchers, err := selectTenants(tenants, c.matchers)
	if err != nil {
		return nil, err
	}
	own := *c.fragment
	own.matchers = matchers
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, name := range tenants {
		first := len(all.series)
		if err := p.findInTenant(name, &own, all, stats, warn); err != nil {
			return nil, err
		}
		for i := first; i < len(all.series); i++ {
			all.series[i].labels = withTenant(b, all.series[i].labels, name)
		}
	}
	for i := range all.series { // A tenant's series have no entries in the segments of later tenants.
		s := &all.series[i]
		s.segments = append(s.segments[:len(s.segments):len(s.segments)],
			make([]*query.SelectedSeries, len(all.segments)-len(s.segments))...)
	}
	return all, nil
}

// findInTenant finds the segments and series of one tenant.
func (p *plan) findInTenant(name string, of *fragment, into *foundFragment, stats *FragmentStats,
	warn func(error)) error {
	store := p.queryable.store
	segments, short, err := of.resolve(p.ctx, store, name, p.resolutionParams())
	if err != nil {
		return err
	}
	lists := make([][]*query.SelectedSeries, len(segments))
	for i, l := range segments {
		if l.found, err = l.open(p.ctx, store, warn); err != nil {
			return err
		}
		lists[i] = l.found
		stats.Segments = append(stats.Segments, l.stats(len(lists[i])))
		if err := p.budget.meterBytes(int64(len(lists[i])) * meteredFound); err != nil {
			return err
		}
	}
	series := joinSegments(lists)
	if _, rollup := p.queryable.names.splitName(equalName(of.matchers)); rollup != nil && len(series) == 0 {
		return errRollupName
	}
	if before := len(into.segments); before > 0 {
		for i := range series {
			series[i].segments = append(make([]*query.SelectedSeries, before, before+len(segments)),
				series[i].segments...)
		}
	}
	if into.series == nil {
		into.series = series
	} else {
		into.series = append(into.series, series...)
	}
	into.segments = append(into.segments, segments...)
	into.short.Merge(short)
	into.uses, into.sizes = append(into.uses, store.Limiter().Use(p.ctx, name)), append(into.sizes, len(series))
	stats.Series += len(series)
	return nil
}
