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

// tenantLabel is the label of alerts that contains the tenant. Alerts of the default tenant don't have this label.
const tenantLabel = "tenant"

// externalURL returns the URL with which links in a tenant's alerts start. For tenants other than the default one, it
// includes the tenant's path.
func (r *Ruler) externalURL(name string) *url.URL {
	if name == tenant.Default {
		return r.o.ExternalURL
	}
	u := *r.o.ExternalURL
	u.Path = strings.TrimSuffix(u.Path, "/") + "/t/" + name
	return &u
}

// notifyFunc returns the function that sends the alerts of a tenant.
func (r *Ruler) notifyFunc(name string) rules.NotifyFunc {
	if r.o.Send == nil {
		return func(context.Context, string, ...*rules.Alert) {}
	}
	send := rules.SendAlerts(r.o.Send, r.externalURL(name).String())
	return func(ctx context.Context, expr string, alerts ...*rules.Alert) {
		now := r.o.Now()
		current := make([]*rules.Alert, 0, len(alerts))
		for _, a := range alerts {
			// The alerts of an evaluation that was caught up may be so old that an Alertmanager would treat them as
			// resolved.
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
		// After a panic, the alerts are sent again by a later evaluation, as long as they fire.
		_ = panics.Call("sending alerts", func() error { send(ctx, expr, current...); return nil })
	}
}
