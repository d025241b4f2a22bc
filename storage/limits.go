package storage

import (
	"errors"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/tenant"
)

// labelBounds bound a series' labels: their number, and the bytes of names and values.
type labelBounds struct {
	labels, name, value int
	// truncates: longer values are truncated rather than rejected.
	truncates bool
}

// labelBounds returns those of a tenant: its own limits, or the store's.
func (o *Options) labelBounds(name string) labelBounds {
	limits := o.Limiter.Of(name)
	b := labelBounds{o.MaxLabels, o.MaxLabelName, o.MaxLabelValue, limits.LongLabelValues == tenant.TruncateLongLabelValues}
	for _, own := range []struct {
		limit int64
		bound *int
	}{{limits.Labels, &b.labels}, {limits.LabelNameBytes, &b.name}, {limits.LabelValueBytes, &b.value}} {
		if own.limit > 0 {
			*own.bound = int(own.limit)
		}
	}
	return b
}

// MaxLabelValue returns how many bytes the value of a tenant's label may have.
func (s *Store) MaxLabelValue(tenant string) int { return s.opts.labelBounds(tenant).value }

// anyLabels bound what any tenant may have stored, whatever its limits were.
func (o *Options) anyLabels() labelBounds {
	return labelBounds{labels: max(o.MaxLabels, tenant.MaxLabels), name: engine.MaxKeyText, value: engine.MaxKeyText}
}

// countRefused counts a series that was refused because of a limit of the tenant's own.
func (b *Batch) countRefused(err error) {
	var bad *LabelError
	if !errors.As(err, &bad) {
		return
	}
	limiter, name := b.s.opts.Limiter, b.tenant.Name()
	limits := limiter.Of(name)
	switch {
	case bad.Reason == ReasonTooManyLabels && limits.Labels > 0:
		limiter.Refused(name, tenant.KeyLabels, 1)
	case bad.Reason == ReasonLabelNameTooLong && limits.LabelNameBytes > 0:
		limiter.Refused(name, tenant.KeyLabelNameBytes, 1)
	case bad.Reason == ReasonLabelValueTooLong && limits.LabelValueBytes > 0:
		limiter.Refused(name, tenant.KeyLabelValueBytes, 1)
	}
}

// mayEnter reports whether the head takes one more series of a tenant. The caller holds the tenant's lock.
func (s *Store) mayEnter(t *head.Tenant) error {
	if s.head.RefusesSeries(t, s.opts.HeadBytes) {
		return ErrTooManySeries
	}
	return s.opts.Limiter.TakeSeries(t.Name(), t.Known(), s.Ready() == nil)
}

// QueryBytes returns Options.QueryBytes.
func (s *Store) QueryBytes() int64 { return s.opts.QueryBytes }

// HeadBytes is about how much memory what isn't sealed takes.
func (s *Store) HeadBytes() int64 { return s.head.Bytes() }

// HeadOverfull reports whether samples of known series are refused, at least those of who holds most, which lasts until
// slots are sealed.
func (s *Store) HeadOverfull() bool { return s.head.Overfull(s.opts.HeadBytes) }

// Limiter returns what holds tenants to their limits; nil: nothing does.
func (s *Store) Limiter() *tenant.Limiter { return s.opts.Limiter }

// ActiveSeries returns how many series of a tenant have samples that aren't sealed.
func (s *Store) ActiveSeries(tenant string) int { return s.head.ActiveSeries(tenant) }

// ForgetAliases forgets under which aliases the series of some tenants were found: their batches use others from now on.
func (s *Store) ForgetAliases(of func(tenant string) bool) { s.head.ForgetAliases(of) }
