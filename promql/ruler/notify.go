package ruler

import (
	"context"
	"net/url"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"

	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/tenant"
)

// tenantLabel is the label for the tenant of alerts, but for those of the default tenant.
const tenantLabel = "tenant"

// externalURL is where links in a tenant's alerts lead: other tenants than the default one have theirs in the path.
func (r *Ruler) externalURL(name string) *url.URL {
	if name == tenant.Default {
		return r.o.ExternalURL
	}
	u := *r.o.ExternalURL
	u.Path = strings.TrimSuffix(u.Path, "/") + "/t/" + name
	return &u
}

// notify returns what sends the alerts of a tenant.
func (r *Ruler) notify(name string) rules.NotifyFunc {
	if r.o.Send == nil {
		return func(context.Context, string, ...*rules.Alert) {}
	}
	send := rules.SendAlerts(r.o.Send, r.externalURL(name).String())
	return func(ctx context.Context, expr string, alerts ...*rules.Alert) {
		now := r.o.Now()
		current := make([]*rules.Alert, 0, len(alerts))
		for _, a := range alerts {
			// An evaluation that was caught up may be so old that what fired then would be over for an Alertmanager.
			if a.ResolvedAt.IsZero() && !a.ValidUntil.After(now) {
				continue
			}
			if name != tenant.Default && !a.Labels.Has(tenantLabel) {
				of := *a
				of.Labels = labels.NewBuilder(a.Labels).Set(tenantLabel, name).Labels()
				a = &of
			}
			current = append(current, a)
		}
		_ = panics.Do("sending alerts", func() error { send(ctx, expr, current...); return nil }) // They are sent again while they fire.
	}
}
