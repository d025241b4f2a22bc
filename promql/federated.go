package promql

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage/labelorder"
	"github.com/cassia-db/cassia/storage/tenant"
)

// A request of multiple tenants reads the series of all of them, with a label for the tenant of each series, as in
// Mimir. If a series already has a label named tenantLabel, that label is renamed to originalLabel.
const (
	tenantLabel   = "__tenant_id__"
	originalLabel = "original_" + tenantLabel
)

// selectTenants returns the tenants that match the matchers of the tenant label, and the remaining matchers.
func selectTenants(tenants []string, matchers []*labels.Matcher) ([]string, []*labels.Matcher, error) {
	rest := make([]*labels.Matcher, 0, len(matchers))
	for _, m := range matchers {
		switch m.Name {
		case tenantLabel:
			tenants = slices.DeleteFunc(slices.Clone(tenants), func(name string) bool { return !m.Matches(name) })
		case originalLabel:
			own, err := labels.NewMatcher(m.Type, tenantLabel, m.Value)
			if err != nil {
				return nil, nil, err
			}
			rest = append(rest, own)
		default:
			rest = append(rest, m)
		}
	}
	return tenants, rest, nil
}

// withTenant returns the labels of a series with the tenant label added.
func withTenant(b *labels.Builder, ls labels.Labels, name string) labels.Labels {
	b.Reset(ls)
	if own := ls.Get(tenantLabel); own != "" {
		b.Set(originalLabel, own)
	}
	return b.Set(tenantLabel, name).Labels()
}

// findInTenants finds the series of multiple tenants.
func (r *reader) findInTenants(ctx context.Context, tenants []string, w *warnings, sorted bool,
	hints *promstorage.SelectHints, matchers []*labels.Matcher) ([]sourceSeries, error) {
	tenants, matchers, err := selectTenants(tenants, matchers)
	if err != nil {
		return nil, err
	}
	var all []sourceSeries
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, name := range tenants {
		found, err := r.findSeries(tenant.NewContext(ctx, name), w, false, hints, matchers)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].labels = withTenant(b, found[i].labels, name)
		}
		all = append(all, found...)
	}
	if sorted {
		labelorder.Sort(all, func(s sourceSeries) labels.Labels { return s.labels })
	}
	if hints != nil && hints.Limit > 0 && hints.ShardCount == 0 && len(all) > hints.Limit {
		all = all[:hints.Limit]
	}
	return all, nil
}

// labelNamesInTenants lists the label names of multiple tenants.
func (r *reader) labelNamesInTenants(ctx context.Context, tenants []string, hints *promstorage.LabelHints,
	matchers []*labels.Matcher) ([]string, annotations.Annotations, error) {
	return eachTenant(ctx, tenants, matchers,
		func(ctx context.Context, _ string, rest []*labels.Matcher) ([]string, annotations.Annotations, error) {
			names, notes, err := r.LabelNames(ctx, hints, rest...)
			if i := slices.Index(names, tenantLabel); i >= 0 {
				names = append(slices.Clone(names), originalLabel)
			}
			if len(names) > 0 {
				names = append(slices.Clone(names), tenantLabel)
			}
			return names, notes, err
		})
}

// labelValuesInTenants lists the values of a label of multiple tenants.
func (r *reader) labelValuesInTenants(ctx context.Context, tenants []string, label string,
	hints *promstorage.LabelHints, matchers []*labels.Matcher) ([]string, annotations.Annotations, error) {
	return eachTenant(ctx, tenants, matchers,
		func(ctx context.Context, name string, rest []*labels.Matcher) ([]string, annotations.Annotations, error) {
			switch label {
			case tenantLabel: // The values are the tenants that have matching series.
				names, notes, err := r.LabelNames(ctx, hints, rest...)
				if len(names) > 0 {
					names = []string{name}
				}
				return names, notes, err
			case originalLabel:
				return r.LabelValues(ctx, tenantLabel, hints, rest...)
			}
			return r.LabelValues(ctx, label, hints, rest...)
		})
}

// eachTenant merges and sorts the results of list for each tenant that the matchers select.
func eachTenant(ctx context.Context, tenants []string, matchers []*labels.Matcher,
	list func(ctx context.Context, name string, rest []*labels.Matcher) ([]string, annotations.Annotations, error),
) ([]string, annotations.Annotations, error) {
	tenants, rest, err := selectTenants(tenants, matchers)
	if err != nil {
		return nil, nil, err
	}
	var all []string
	var notes annotations.Annotations
	for _, name := range tenants {
		found, warned, err := list(tenant.NewContext(ctx, name), name, rest)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, found...)
		notes.Merge(warned)
	}
	slices.Sort(all)
	return slices.Compact(all), notes, nil
}

// selectInTenants finds the exemplars of multiple tenants.
func (q exemplarQuerier) selectInTenants(tenants []string, start, end int64,
	sets [][]*labels.Matcher) ([]exemplar.QueryResult, error) {
	all := []exemplar.QueryResult{}
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, name := range tenants {
		var own [][]*labels.Matcher
		for _, set := range sets {
			of, rest, err := selectTenants([]string{name}, set)
			if err != nil {
				return nil, err
			}
			if len(of) > 0 {
				own = append(own, rest)
			}
		}
		if len(own) == 0 {
			continue
		}
		found, err := exemplarQuerier{tenant.NewContext(q.ctx, name), q.store}.Select(start, end, own...)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].SeriesLabels = withTenant(b, found[i].SeriesLabels, name)
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b exemplar.QueryResult) int { return labels.Compare(a.SeriesLabels, b.SeriesLabels) })
	return all, nil
}
