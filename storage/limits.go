package storage

import (
	"errors"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/tenant"
)

// labelBounds holds the limits on the labels of a series: their number, and the bytes of a name and of a value.
type labelBounds struct {
	labels, name, value int
	// truncates is true if values that are too long are truncated rather than rejected.
	truncates bool
}

// labelBounds returns a tenant's limits. Limits that the tenant doesn't override are taken from o.
func (o *Options) labelBounds(name string) labelBounds {
	limits := o.Limiter.LimitsOf(name)
	b := labelBounds{
		o.MaxLabels, o.MaxLabelName, o.MaxLabelValue, limits.LongLabelValues == tenant.TruncateLongLabelValues,
	}
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

// MaxLabelValue returns the maximum size of a tenant's label values, in bytes.
func (s *Store) MaxLabelValue(tenant string) int { return s.opts.labelBounds(tenant).value }

// maxLabelBounds returns bounds that all stored series meet, including those written under earlier limits.
func (o *Options) maxLabelBounds() labelBounds {
	return labelBounds{labels: max(o.MaxLabels, tenant.MaxLabels), name: engine.MaxKeyText, value: engine.MaxKeyText}
}

// countRejected counts a series that was rejected because of the tenant's own limits.
func (b *Batch) countRejected(err error) {
	var bad *LabelError
	if !errors.As(err, &bad) {
		return
	}
	limiter, name := b.s.opts.Limiter, b.tenant.Name()
	limits := limiter.LimitsOf(name)
	switch {
	case bad.Reason == ReasonTooManyLabels && limits.Labels > 0:
		limiter.CountRejected(name, tenant.KeyLabels, 1)
	case bad.Reason == reasonLabelNameTooLong && limits.LabelNameBytes > 0:
		limiter.CountRejected(name, tenant.KeyLabelNameBytes, 1)
	case bad.Reason == ReasonLabelValueTooLong && limits.LabelValueBytes > 0:
		limiter.CountRejected(name, tenant.KeyLabelValueBytes, 1)
	}
}

// checkSeriesLimits returns an error if the head must not accept another series of a tenant. The caller must hold the
// tenant's lock.
func (s *Store) checkSeriesLimits(t *head.Tenant) error {
	if s.head.RejectsSeries(t, s.opts.HeadBytes) {
		return ErrTooManySeries
	}
	return s.opts.Limiter.ChargeSeries(t.Name(), t.SeriesCount(), s.Ready() == nil)
}

// QueryBytes returns Options.QueryBytes.
func (s *Store) QueryBytes() int64 { return s.opts.QueryBytes }

// HeadBytes returns the approximate memory of unsealed data, in bytes.
func (s *Store) HeadBytes() int64 { return s.head.Bytes() }

// IsHeadOverfull reports whether the head rejects samples of known series, at least from the tenants with the most
// unsealed data. It accepts them again after slots are sealed.
func (s *Store) IsHeadOverfull() bool { return s.head.IsOverfull(s.opts.HeadBytes) }

// Limiter returns the limiter of the tenants, or nil if there are no limits.
func (s *Store) Limiter() *tenant.Limiter { return s.opts.Limiter }

// ActiveSeries returns the number of a tenant's series with unsealed samples.
func (s *Store) ActiveSeries(tenant string) int { return s.head.ActiveSeries(tenant) }

// ClearAliases invalidates the aliases of the tenants for which the function of returns true. Their next batches define
// the series again.
func (s *Store) ClearAliases(of func(tenant string) bool) { s.head.ClearAliases(of) }
