package tenant

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxAccounts is the max number of tenants whose usage is stored. Only tenants with limits on rates have an account.
// Idle accounts are removed.
const maxAccounts = 20_000

// Limiter enforces the limits of tenants. Its methods may be called concurrently. A nil Limiter has no limits.
type Limiter struct {
	now     func() time.Time
	table   atomic.Pointer[Table]
	refused *refusals
	// forgetSeries is the function that was passed to SetClearAliases, nil before.
	forgetSeries atomic.Pointer[func(of func(tenant string) bool)]

	mu       sync.RWMutex
	accounts map[string]*account
}

// account is the usage of a tenant.
type account struct {
	mu sync.Mutex
	// over is the time at which a request as large as the last rejected request would be accepted.
	over                          time.Time
	samples, newSeries, exemplars bucket
}

// NewLimiter returns a limiter without limits. now returns the time. The metrics are registered with reg unless it is
// nil.
func NewLimiter(now func() time.Time, reg prometheus.Registerer) *Limiter {
	l := &Limiter{now: now, refused: newRefusals(reg), accounts: map[string]*account{}}
	l.Set(NewTable(Limits{}, nil))
	return l
}

// Set replaces all limits. It doesn't reset the usage of tenants.
func (l *Limiter) Set(t *Table) {
	before := l.table.Swap(t)
	if forget := l.forgetSeries.Load(); forget != nil && before != nil {
		(*forget)(func(name string) bool {
			return before.LimitsOf(name).labelValueLimits() != t.LimitsOf(name).labelValueLimits()
		})
	}
}

// SetClearAliases sets the function that makes the store drop its cached mapping of labels to series for some tenants.
// Set calls the function if label limits change, because the same labels may then be mapped to another series. The
// function's argument selects the tenants.
func (l *Limiter) SetClearAliases(forget func(of func(tenant string) bool)) {
	l.forgetSeries.Store(&forget)
}

// LimitsOf returns the limits of a tenant.
func (l *Limiter) LimitsOf(name string) Limits {
	if l == nil {
		return Limits{}
	}
	return l.table.Load().LimitsOf(name)
}

// ChargeSamples counts n samples towards the rate of samples. It must be called before the samples are made durable. It
// returns a *LimitError with status 429 or 413, or nil.
func (l *Limiter) ChargeSamples(name string, n int) error {
	limits := l.LimitsOf(name)
	if limits.SamplesPerSecond == 0 || n == 0 {
		return nil
	}
	rate, burst := limits.SamplesPerSecond, limits.burst()
	if int64(n) > burst {
		l.CountRejected(name, keySamplesBurst, n)
		return newBurstError(name, n, burst)
	}
	a := l.account(name)
	a.mu.Lock()
	now := l.now()
	wait, ok := a.samples.charge(now, float64(rate), float64(burst), float64(n))
	if !ok {
		a.over = now.Add(min(wait, maxRejection))
	}
	a.mu.Unlock()
	if ok {
		return nil
	}
	l.CountRejected(name, keySamplesPerSecond, n)
	return newRateError(name, n, wait, rate, burst)
}

// maxRejection is the max time after a rejected request for which CheckRate rejects requests.
const maxRejection = time.Second

// CheckRate rejects a request before its body is read, until a request as large as the last rejected request would be
// accepted. A sender that doesn't wait then costs very little, and small requests can't starve a large one. CheckRate
// returns a *LimitError with status 429, or nil.
func (l *Limiter) CheckRate(name string) error {
	limits := l.LimitsOf(name)
	if limits.SamplesPerSecond == 0 {
		return nil
	}
	a, now := l.account(name), l.now()
	a.mu.Lock()
	wait := a.over.Sub(now)
	a.mu.Unlock()
	if wait <= 0 || wait > maxRejection { // A longer wait means that the clock was set back.
		return nil
	}
	l.CountRejected(name, keySamplesPerSecond, 1)
	return newRateError(name, 0, wait, limits.SamplesPerSecond, limits.burst())
}

func newRateError(name string, n int, wait time.Duration, rate, burst int64) *LimitError {
	return &LimitError{
		Tenant: name, Limit: keySamplesPerSecond, Status: http.StatusTooManyRequests, RetryAfter: wait,
		samples: int64(n), burst: burst, rate: rate,
		Detail: fmt.Sprintf(
			"more than %d samples per second, with bursts of %d; send fewer samples, or ask the operator to raise "+
				"the limit. Retry in %s",
			rate, burst, wait.Round(time.Second/10),
		),
	}
}

// RefundSamples returns the tokens of samples that ChargeSamples has counted and that were not stored. Otherwise these
// samples would count twice when they are sent again.
func (l *Limiter) RefundSamples(name string, n int) {
	if l.LimitsOf(name).SamplesPerSecond == 0 || n == 0 {
		return
	}
	a := l.account(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.samples.refund(float64(n))
}

// ChargeSeries counts a series before it is added to the head. active is the number of the tenant's series in the head.
// counted is true if the series is new and counts towards NewSeriesPerHour. While the head is being rebuilt, it isn't
// known which series are new. ChargeSeries returns a *LimitError with status 400, or nil.
func (l *Limiter) ChargeSeries(name string, active int, counted bool) error {
	limits := l.LimitsOf(name)
	if most := limits.ActiveSeries; most > 0 && int64(active) >= most {
		l.CountRejected(name, KeyActiveSeries, 1)
		return &LimitError{
			Tenant: name, Limit: KeyActiveSeries, Status: http.StatusBadRequest,
			Detail: fmt.Sprintf(
				"the tenant has %d active series, and new ones are rejected; send fewer series, or ask the operator "+
					"to raise the limit",
				most,
			),
		}
	}
	most := limits.NewSeriesPerHour
	if most == 0 || !counted {
		return nil
	}
	a := l.account(name)
	a.mu.Lock()
	wait, ok := a.newSeries.charge(l.now(), float64(most)/time.Hour.Seconds(), float64(most), 1)
	a.mu.Unlock()
	if ok {
		return nil
	}
	l.CountRejected(name, keyNewSeriesPerHour, 1)
	return &LimitError{
		Tenant: name, Limit: keyNewSeriesPerHour, Status: http.StatusBadRequest,
		Detail: fmt.Sprintf("more than %d new series per hour; look for labels with changing values (churn), or ask "+
			"the operator to raise the limit. The next series is accepted in %s",
			most, wait.Round(time.Second/10)),
	}
}

// ChargeExemplar counts an exemplar. It returns a *LimitError with status 400, or nil. The status isn't 429, because
// the sender would then also retry the samples of the request.
func (l *Limiter) ChargeExemplar(name string) error {
	rate := l.LimitsOf(name).ExemplarsPerSecond
	if rate == 0 {
		return nil
	}
	a := l.account(name)
	a.mu.Lock()
	_, ok := a.exemplars.charge(l.now(), float64(rate), float64(rate*burstSeconds), 1)
	a.mu.Unlock()
	if ok {
		return nil
	}
	l.CountRejected(name, keyExemplarsPerSecond, 1)
	return &LimitError{
		Tenant: name, Limit: keyExemplarsPerSecond, Status: http.StatusBadRequest,
		Detail: fmt.Sprintf(
			"more than %d exemplars per second; send fewer exemplars, or ask the operator to raise the limit", rate,
		),
	}
}

// CheckRequest returns a *LimitError with status 413 if a tenant's request body of size bytes is too large, otherwise
// nil.
func (l *Limiter) CheckRequest(name string, size int64) error {
	most := l.LimitsOf(name).RequestBytes
	if most == 0 || size <= most {
		return nil
	}
	l.CountRejected(name, keyRequestBytes, 1)
	return &LimitError{
		Tenant: name, Limit: keyRequestBytes, Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf(
			"the request has more than %d bytes; send smaller requests, or ask the operator to raise the limit", most,
		),
	}
}

// CountRejected counts samples, series, requests, exemplars or queries that were rejected by a limit of a tenant.
func (l *Limiter) CountRejected(name, limit string, n int) {
	if l != nil {
		l.refused.count(name, limit, n)
	}
}

// CountTruncated counts a label value of a tenant that was truncated.
func (l *Limiter) CountTruncated(name string) {
	if l != nil {
		l.refused.truncated.WithLabelValues(l.refused.label(name)).Inc()
	}
}

// account returns a tenant's account.
func (l *Limiter) account(name string) *account {
	l.mu.RLock()
	a := l.accounts[name]
	l.mu.RUnlock()
	if a != nil {
		return a
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a = l.accounts[name]; a != nil {
		return a
	}
	if len(l.accounts) >= maxAccounts {
		l.evictAccounts()
	}
	a = &account{}
	l.accounts[name] = a
	return a
}

// evictAccounts removes the accounts whose buckets are full again. If no account has full buckets, it removes any one
// account, so that the number of accounts stays bounded. The tenant of that account may then use the full burst once
// more.
func (l *Limiter) evictAccounts() {
	now, gone := l.now(), false
	for name, a := range l.accounts {
		if limits := l.LimitsOf(name); a.isFull(now, &limits) {
			delete(l.accounts, name)
			gone = true
		}
	}
	if gone {
		return
	}
	for name := range l.accounts {
		delete(l.accounts, name)
		return
	}
}

func (a *account) isFull(now time.Time, l *Limits) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	samples, series, exemplars := float64(l.burst()), float64(l.NewSeriesPerHour),
		float64(l.ExemplarsPerSecond*burstSeconds)
	a.samples.refill(now, float64(l.SamplesPerSecond), samples)
	a.newSeries.refill(now, series/time.Hour.Seconds(), series)
	a.exemplars.refill(now, float64(l.ExemplarsPerSecond), exemplars)
	return a.samples.level >= samples && a.newSeries.level >= series && a.exemplars.level >= exemplars
}

// Remaining returns the amount of each rate that the tenant can use immediately, by the name of the limit. Limits that
// aren't set are omitted.
func (l *Limiter) Remaining(name string) map[string]float64 {
	limits, out := l.LimitsOf(name), map[string]float64{}
	if limits.SamplesPerSecond+limits.NewSeriesPerHour+limits.ExemplarsPerSecond == 0 {
		return out
	}
	a := l.account(name)
	a.isFull(l.now(), &limits)
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, b := range map[string]struct {
		rate  int64
		level float64
	}{
		keySamplesPerSecond:   {limits.SamplesPerSecond, a.samples.level},
		keyNewSeriesPerHour:   {limits.NewSeriesPerHour, a.newSeries.level},
		keyExemplarsPerSecond: {limits.ExemplarsPerSecond, a.exemplars.level},
	} {
		if b.rate > 0 {
			out[k] = b.level
		}
	}
	return out
}
