package tenant

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxAccounts bounds the tenants whose use is remembered. Only those with limits of rates are; idle ones are forgotten.
const maxAccounts = 20_000

// Limiter holds tenants to their limits. Its methods may be called by many goroutines. A nil Limiter sets no limits.
type Limiter struct {
	now     func() time.Time
	table   atomic.Pointer[Table]
	refused *refusals
	// forgetSeries is set by ForgetWith; nil: nothing is to be forgotten.
	forgetSeries atomic.Pointer[func(of func(tenant string) bool)]

	mu       sync.RWMutex
	accounts map[string]*account
}

// account is what a tenant has used.
type account struct {
	mu sync.Mutex
	// over is until when a request of samples that was refused would have to wait.
	over                          time.Time
	samples, newSeries, exemplars bucket
}

// NewLimiter returns a limiter without limits. now is the clock; reg gets metrics, nil: none are kept.
func NewLimiter(now func() time.Time, reg prometheus.Registerer) *Limiter {
	l := &Limiter{now: now, refused: newRefusals(reg), accounts: map[string]*account{}}
	l.Set(NewTable(Limits{}, nil))
	return l
}

// Set replaces all limits. What tenants have used stays.
func (l *Limiter) Set(t *Table) {
	before := l.table.Swap(t)
	if forget := l.forgetSeries.Load(); forget != nil && before != nil {
		(*forget)(func(name string) bool { return before.Of(name).ofLabelValues() != t.Of(name).ofLabelValues() })
	}
}

// ForgetWith sets what makes the store forget which series the labels of some tenants' samples led to: Set calls it, because those labels may lead to
// another series.
func (l *Limiter) ForgetWith(forget func(of func(tenant string) bool)) { l.forgetSeries.Store(&forget) }

// Of returns the limits of a tenant.
func (l *Limiter) Of(name string) Limits {
	if l == nil {
		return Limits{}
	}
	return l.table.Load().Of(name)
}

// TakeSamples counts n samples that are about to be made durable. It returns a *LimitError, of 429 or 413, or nil.
func (l *Limiter) TakeSamples(name string, n int) error {
	limits := l.Of(name)
	if limits.SamplesPerSecond == 0 || n == 0 {
		return nil
	}
	rate, burst := limits.SamplesPerSecond, limits.burst()
	if int64(n) > burst {
		l.Refused(name, KeySamplesBurst, n)
		return overBurst(name, n, burst)
	}
	a := l.account(name)
	a.mu.Lock()
	now := l.now()
	wait, ok := a.samples.take(now, float64(rate), float64(burst), float64(n))
	if !ok {
		a.over = now.Add(min(wait, longestRefusal))
	}
	a.mu.Unlock()
	if ok {
		return nil
	}
	l.Refused(name, KeySamplesPerSecond, n)
	return overRate(name, n, wait, rate, burst)
}

// longestRefusal bounds for how long CheckRate refuses requests after one that was refused.
const longestRefusal = time.Second

// CheckRate refuses a request of samples before it is read, while one that was refused would be again: a *LimitError, of
// 429, or nil. A sender that doesn't wait costs next to nothing then, and small requests don't keep a large one from ever
// finding room.
func (l *Limiter) CheckRate(name string) error {
	limits := l.Of(name)
	if limits.SamplesPerSecond == 0 {
		return nil
	}
	a, now := l.account(name), l.now()
	a.mu.Lock()
	wait := a.over.Sub(now)
	a.mu.Unlock()
	if wait <= 0 || wait > longestRefusal { // The clock went back.
		return nil
	}
	l.Refused(name, KeySamplesPerSecond, 1)
	return overRate(name, 0, wait, limits.SamplesPerSecond, limits.burst())
}

func overRate(name string, n int, wait time.Duration, rate, burst int64) *LimitError {
	return &LimitError{
		Tenant: name, Limit: KeySamplesPerSecond, Status: http.StatusTooManyRequests, RetryAfter: wait, samples: int64(n), burst: burst, rate: rate,
		Detail: fmt.Sprintf("more than %d samples per second, with bursts of %d; send fewer samples, or ask the operator to raise the limit. Retry in %s",
			rate, burst, wait.Round(time.Second/10)),
	}
}

// GiveSamples gives back the tokens of samples that weren't stored for another reason, so that sending them again
// doesn't count twice.
func (l *Limiter) GiveSamples(name string, n int) {
	if l.Of(name).SamplesPerSecond == 0 || n == 0 {
		return
	}
	a := l.account(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.samples.give(float64(n))
}

// TakeSeries counts a series that is about to enter the head, where active are. counted: it is new as far as is known,
// which isn't so while the head is being rebuilt. It returns a *LimitError, of 400, or nil.
func (l *Limiter) TakeSeries(name string, active int, counted bool) error {
	limits := l.Of(name)
	if most := limits.ActiveSeries; most > 0 && int64(active) >= most {
		l.Refused(name, KeyActiveSeries, 1)
		return &LimitError{
			Tenant: name, Limit: KeyActiveSeries, Status: http.StatusBadRequest,
			Detail: fmt.Sprintf("the tenant has %d active series, and new ones are rejected; send fewer series, or ask the operator to raise the limit", most),
		}
	}
	most := limits.NewSeriesPerHour
	if most == 0 || !counted {
		return nil
	}
	a := l.account(name)
	a.mu.Lock()
	wait, ok := a.newSeries.take(l.now(), float64(most)/time.Hour.Seconds(), float64(most), 1)
	a.mu.Unlock()
	if ok {
		return nil
	}
	l.Refused(name, KeyNewSeriesPerHour, 1)
	return &LimitError{
		Tenant: name, Limit: KeyNewSeriesPerHour, Status: http.StatusBadRequest,
		Detail: fmt.Sprintf("more than %d new series per hour; look for labels with changing values (churn), or ask the operator to raise the limit. "+
			"The next series is accepted in %s",
			most, wait.Round(time.Second/10)),
	}
}

// TakeExemplar counts an exemplar. It returns a *LimitError, of 400, for samples mustn't wait behind exemplars, or nil.
func (l *Limiter) TakeExemplar(name string) error {
	rate := l.Of(name).ExemplarsPerSecond
	if rate == 0 {
		return nil
	}
	a := l.account(name)
	a.mu.Lock()
	_, ok := a.exemplars.take(l.now(), float64(rate), float64(rate*burstSeconds), 1)
	a.mu.Unlock()
	if ok {
		return nil
	}
	l.Refused(name, KeyExemplarsPerSecond, 1)
	return &LimitError{
		Tenant: name, Limit: KeyExemplarsPerSecond, Status: http.StatusBadRequest,
		Detail: fmt.Sprintf("more than %d exemplars per second; send fewer exemplars, or ask the operator to raise the limit", rate),
	}
}

// CheckRequest returns nil if a body of so many bytes may be read for a tenant, and a *LimitError, of 413, otherwise.
func (l *Limiter) CheckRequest(name string, size int64) error {
	most := l.Of(name).RequestBytes
	if most == 0 || size <= most {
		return nil
	}
	l.Refused(name, KeyRequestBytes, 1)
	return &LimitError{
		Tenant: name, Limit: KeyRequestBytes, Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("the request has more than %d bytes; send smaller requests, or ask the operator to raise the limit", most),
	}
}

// Refused counts samples, series, requests, exemplars or queries that a limit of a tenant has refused.
func (l *Limiter) Refused(name, limit string, n int) {
	if l != nil {
		l.refused.count(name, limit, n)
	}
}

// Truncated counts a label value of a tenant that was truncated.
func (l *Limiter) Truncated(name string) {
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
		l.forget()
	}
	a = &account{}
	l.accounts[name] = a
	return a
}

// forget lets go of the accounts whose buckets are full again, and if there are none of any that comes first: a tenant that
// is forgotten may have its burst once more, which is less harm than memory without bound.
func (l *Limiter) forget() {
	now, gone := l.now(), false
	for name, a := range l.accounts {
		if limits := l.Of(name); a.full(now, &limits) {
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

func (a *account) full(now time.Time, l *Limits) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	samples, series, exemplars := float64(l.burst()), float64(l.NewSeriesPerHour), float64(l.ExemplarsPerSecond*burstSeconds)
	a.samples.fill(now, float64(l.SamplesPerSecond), samples)
	a.newSeries.fill(now, series/time.Hour.Seconds(), series)
	a.exemplars.fill(now, float64(l.ExemplarsPerSecond), exemplars)
	return a.samples.level >= samples && a.newSeries.level >= series && a.exemplars.level >= exemplars
}

// Left returns how much of a tenant's rates could be used at once now, by the names of limits; only of those that are set.
func (l *Limiter) Left(name string) map[string]float64 {
	limits, out := l.Of(name), map[string]float64{}
	if limits.SamplesPerSecond+limits.NewSeriesPerHour+limits.ExemplarsPerSecond == 0 {
		return out
	}
	a := l.account(name)
	a.full(l.now(), &limits)
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, b := range map[string]struct {
		rate  int64
		level float64
	}{
		KeySamplesPerSecond:   {limits.SamplesPerSecond, a.samples.level},
		KeyNewSeriesPerHour:   {limits.NewSeriesPerHour, a.newSeries.level},
		KeyExemplarsPerSecond: {limits.ExemplarsPerSecond, a.exemplars.level},
	} {
		if b.rate > 0 {
			out[k] = b.level
		}
	}
	return out
}
