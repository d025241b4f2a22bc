package ruler

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Groups returns the groups of a tenant from the files as last read, sorted by file and name. The groups aren't
// evaluated unless the caller evaluates them, with its own clock. The results are then stored and the alerts sent, as
// for running groups.
func (r *Ruler) Groups(ctx context.Context, name string) ([]*rules.Group, error) {
	r.mu.Lock()
	files := r.files[name]
	r.mu.Unlock()
	return r.loadGroups(ctx, name, files, r.o.Appendable, r.notifyFunc(name))
}

func (r *Ruler) loadGroups(ctx context.Context, name string, files ruleFiles, into promstorage.Appendable,
	notify rules.NotifyFunc) ([]*rules.Group, error) {
	m := &manager{r: r, tenant: name, files: files}
	o := m.options(tenant.NewContext(ctx, name), r.o.Logger.With("tenant", name), rules.NewGroupMetrics(nil), into)
	o.NotifyFunc = notify
	byKey, errs := rules.NewManager(o).LoadGroups(r.o.Interval, r.o.ExternalLabels, r.externalURL(name).String(), nil,
		false, files.paths()...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	groups := make([]*rules.Group, 0, len(byKey))
	for _, g := range byKey {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *rules.Group) int {
		return strings.Compare(rules.GroupKey(a.File(), a.Name()), rules.GroupKey(b.File(), b.Name()))
	})
	return groups, nil
}
