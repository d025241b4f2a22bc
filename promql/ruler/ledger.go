package ruler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/prometheus/rules"
)

// errRulesTooLarge means that a rule isn't evaluated because the results of rules would need too much memory.
var errRulesTooLarge = errors.New("ruler: the results of rules need too much memory")

// ruleLedger bounds the memory of rules: the series and alerts that Prometheus keeps for each rule until the next
// evaluation of the rule, and the result of a rule that is being stored. Sizes are estimates in bytes, see memory.go.
//
//	ruleQuery ─► the result, and the memory that the rule needs until the result is stored ─► passing
//	the rule has been evaluated ─► its passing bytes are released; the series and alerts that it keeps ─► held
//	a group takes over ─► the stored results that it reads ─► found
//
// A result that doesn't fit besides the held bytes is an error. A result that doesn't fit only because other results
// are being stored waits for them. A rule that waits holds no result: it queries again.
type ruleLedger struct {
	// limit is the maximum of held and passing together, and of found. 0: no limit.
	limit int64

	mu                   sync.Mutex
	held, passing, found int64
	// released is closed when passing bytes are released. nil: no rule waits.
	released chan struct{}
}

// results returns the bytes of the results and alerts of all rules.
func (l *ruleLedger) results() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held + l.passing
}

// charges are the account of a group in a ledger: a charge per rule. Its methods are called by one goroutine at a time,
// except release.
type charges struct {
	ledger *ruleLedger
	group  *rules.Group // the group that was evaluated last; nil: none

	// The ledger's lock guards the fields below.
	charges map[rules.Rule]*charge
	// stale are bytes of series of rules that the group no longer contains. Prometheus keeps the series until it has
	// stored their stale markers.
	stale int64
	// found are bytes of stored results.
	found int64
	// closed is true after release.
	closed bool
}

// charge holds the bytes of a rule.
type charge struct {
	// series are the bytes of the series of the last evaluation. alerts are the bytes of active and resolved alerts.
	series, alerts int64
	// passing are the bytes of the evaluation in progress.
	passing int64
}

func (l *ruleLedger) newAccount() *charges {
	return &charges{ledger: l, charges: map[rules.Rule]*charge{}}
}

type accountKey struct{}

// withAccount returns a context whose evaluations are charged to a.
func withAccount(ctx context.Context, a *charges) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// accountOf returns the account of a context, or nil. Without an account, the memory of an evaluation has no bound.
func accountOf(ctx context.Context) *charges {
	a, _ := ctx.Value(accountKey{}).(*charges)
	return a
}

// adoptGroup prepares the account for evaluations of g. If g has replaced the group that was evaluated last, the
// charges move to the rules to which Prometheus copies the state: rules with the same name and labels, in order.
func (a *charges) adoptGroup(g *rules.Group) {
	if a == nil || a.group == g {
		return
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	nameOf := func(rule rules.Rule) string { return rule.Name() + rule.Labels().String() }
	old := map[string][]*charge{}
	if a.group != nil {
		for _, rule := range a.group.Rules() {
			if c := a.charges[rule]; c != nil {
				old[nameOf(rule)] = append(old[nameOf(rule)], c)
			}
		}
	}
	a.group, a.charges = g, map[rules.Rule]*charge{}
	for _, rule := range g.Rules() {
		c := &charge{}
		if same := old[nameOf(rule)]; len(same) > 0 {
			c, old[nameOf(rule)] = same[0], same[1:]
		}
		a.charges[rule] = c
	}
	for _, same := range old {
		for _, c := range same {
			a.retireCharge(c)
		}
	}
}

// retireCharge releases the charge of a rule that is no longer evaluated, except for the labels of its series. The
// caller must hold the ledger's lock.
func (a *charges) retireCharge(c *charge) {
	a.stale += c.series / 2 // Of two texts per series, Prometheus keeps one.
	a.ledger.held -= c.series - c.series/2 + c.alerts
	a.ledger.releasePassing(c)
	c.series, c.alerts = 0, 0
}

// retire releases the charges of a group that is no longer evaluated, except for the labels of its series.
func (a *charges) retire() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	for _, c := range a.charges {
		a.retireCharge(c)
	}
}

// release releases all charges. Later calls of methods have no effect.
func (a *charges) release() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	for _, c := range a.charges {
		a.retireCharge(c)
	}
	a.ledger.held -= a.stale
	a.ledger.found -= a.found
	a.stale, a.found, a.closed = 0, 0, true
}

// chargeOf returns the charge of a rule, or nil if there is none.
func (a *charges) chargeOf(rule rules.Rule) *charge {
	if a == nil {
		return nil
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.charges[rule]
}

// setHeld sets the bytes that a rule keeps. to is a field of the rule's charge.
func (a *charges) setHeld(to *int64, bytes int64) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if !a.closed {
		a.ledger.held += bytes - *to
		*to = bytes
	}
}

// clearStale records that the stale markers of all removed rules have been stored.
func (a *charges) clearStale() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.ledger.held -= a.stale
	a.stale = 0
}

// reservation is the memory of a rule from the end of its query to the end of its evaluation, in bytes.
type reservation struct {
	// kept are bytes that the rule then keeps until its next evaluation, instead of the bytes that it keeps now.
	// transient are bytes that it then releases.
	kept, transient int64
}

// passing returns the bytes to reserve besides the bytes that the rule keeps now. Both results exist while the next one
// is stored. If the result grows, the same is reserved as for its next evaluation, so that a rule whose first
// evaluation fits doesn't fail at the second one.
func (r reservation) passing(c *charge) int64 {
	return r.kept + r.transient + max(0, r.kept-c.series-c.alerts)
}

// errMustWait means that the memory for a rule isn't available until other rules have been evaluated.
var errMustWait = errors.New("ruler: the rule must wait until other rules have been evaluated")

// setPassing reserves n bytes for the evaluation of a rule, instead of the bytes that are reserved for it. It returns
// errMustWait, or an error that wraps errRulesTooLarge if the rule must not be evaluated.
func (a *charges) setPassing(rule rules.Rule, c *charge, n int64) error {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.setPassingLocked(rule, c, n)
}

func (a *charges) setPassingLocked(rule rules.Rule, c *charge, n int64) error {
	l := a.ledger
	switch {
	case a.closed:
		return context.Canceled
	case l.limit == 0 || l.held+l.passing-c.passing+n <= l.limit:
		if n < c.passing {
			l.releasePassing(c)
		}
		l.passing += n - c.passing
		c.passing = n
		return nil
	case l.held+n <= l.limit:
		return errMustWait
	}
	return fmt.Errorf("%w: rule %q needs %d bytes in addition to the %d bytes that rules hold; the maximum is %d "+
		"bytes, an eighth of --memory.max-bytes. Change its expression to return fewer series, evaluate fewer rules, "+
		"or raise --memory.max-bytes", errRulesTooLarge, rule.Name(), n, l.held, l.limit)
}

// waitForPassing is setPassing, but waits for other rules. While it waits, nothing is reserved for the rule. It returns
// the error of ctx if ctx ends first.
func (a *charges) waitForPassing(ctx context.Context, rule rules.Rule, c *charge, n int64) error {
	l := a.ledger
	for {
		l.mu.Lock()
		l.releasePassing(c)
		if err := a.setPassingLocked(rule, c, n); !errors.Is(err, errMustWait) {
			l.mu.Unlock()
			return err
		}
		if l.released == nil {
			l.released = make(chan struct{})
		}
		released := l.released
		l.mu.Unlock()
		select {
		case <-released:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// finishRule releases the memory that is reserved for a rule.
func (a *charges) finishRule(c *charge) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.ledger.releasePassing(c)
}

// releasePassing releases the memory that is reserved for a rule. The caller must hold mu.
func (l *ruleLedger) releasePassing(c *charge) {
	if c.passing == 0 {
		return
	}
	l.passing -= c.passing
	c.passing = 0
	if l.released != nil {
		close(l.released)
		l.released = nil
	}
}

// addFound charges n bytes of stored results that a takeover has read. It returns an error that wraps errRulesTooLarge
// if the stored results of all takeovers need too much memory.
func (a *charges) addFound(n int64) error {
	if a == nil {
		return nil
	}
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit > 0 && l.found+n > l.limit {
		return fmt.Errorf("%w: the stored results exceed %d bytes, an eighth of --memory.max-bytes", errRulesTooLarge,
			l.limit)
	}
	if !a.closed {
		l.found, a.found = l.found+n, a.found+n
	}
	return nil
}

// clearFound releases the stored results that a takeover has read, except for keep bytes.
func (a *charges) clearFound(keep int64) {
	if a == nil {
		return
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if !a.closed {
		a.ledger.found -= a.found - keep
		a.found = keep
	}
}
