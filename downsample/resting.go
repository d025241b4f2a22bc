package downsample

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/ended"
)

const (
	// overRest is the time without writes after which a past window is compacted or counted. overAgainRest applies if
	// it was compacted or counted before. It is longer because late samples may arrive a few at a time.
	overRest      = 30 * time.Second
	overAgainRest = 6 * time.Hour
)

// restingWindows lists past windows that are processed once they are no longer written to: windows of rollups to be
// compacted, or windows of raw rows whose series are to be counted. There may be one such window per tenant and day, so
// only a bounded number is kept in memory. When many of these windows are done, the other windows are listed.
type restingWindows struct {
	most int

	mu     sync.Mutex
	list   []*restingWindow // the oldest first
	all    int              // number of waiting windows, including those that aren't in list
	done   int              // since the process started
	listed time.Time        // start of the last listing
	took   time.Duration    // duration of the last listing
}

// restingWindow is a window, with the time since which listings have found no write to it.
type restingWindow struct {
	ended.OverWindow
	streak
	since time.Time
	next  time.Time // not tried before this time
}

// windowKey identifies a window of a tenant.
type windowKey struct {
	tenant string
	window int64
}

func (w *restingWindow) key() windowKey { return windowKey{w.Tenant, w.Window} }

// clear empties the list. It is called when this process doesn't own the work.
func (r *restingWindows) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.all, r.listed = nil, 0, time.Time{}
}

// set replaces the list. If found yields an error, the old list stays.
func (r *restingWindows) set(found iter.Seq2[ended.OverWindow, error], now func() time.Time) error {
	began := now()
	before := map[windowKey]*restingWindow{}
	r.mu.Lock()
	for _, w := range r.list {
		before[w.key()] = w
	}
	r.mu.Unlock()
	all, fresh := 0, []*restingWindow(nil)
	for w, err := range found {
		if err != nil {
			return err
		}
		all++
		x := &restingWindow{OverWindow: w, since: began}
		if b, ok := before[x.key()]; ok {
			x.streak, x.next = b.streak, b.next
			if b.IsSame(&w) && !b.since.After(began) { // otherwise the clock was set back
				x.since = b.since
			}
		}
		if fresh = append(fresh, x); len(fresh) >= 4*r.most {
			fresh = keepFirst(fresh, r.most, firstReady)
		}
	}
	fresh = keepFirst(fresh, r.most, firstReady)
	slices.SortFunc(fresh, compareOver)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.all, r.listed, r.took = fresh, all, began, max(0, now().Sub(began))
	return nil
}

// firstReady compares windows by the time at which they are ready.
func firstReady(a, b *restingWindow) int {
	return cmp.Or(a.ready().Compare(b.ready()), compareOver(a, b))
}

func compareOver(a, b *restingWindow) int {
	return cmp.Or(cmp.Compare(a.EndMS, b.EndMS), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Window, b.Window))
}

// ready returns the time at which a window may be processed if it isn't written to until then.
func (w *restingWindow) ready() time.Time {
	rest := overRest
	if w.Again {
		rest = overAgainRest
	}
	if at := w.since.Add(rest); at.After(w.next) {
		return at
	}
	return w.next
}

// listingShare bounds the share of the time that is spent on listings that find nothing: one part in listingShare.
const listingShare = 200

// due reports whether the windows must be listed again. This is the case after interval. If there are more windows than
// are kept in memory, it is also the case when at most half of the list is left. If the last listing was empty and took
// long, the interval is longer.
func (r *restingWindows) due(now time.Time, interval time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := now.Sub(r.listed)
	switch {
	case r.listed.IsZero() || since < 0:
		return true
	case r.all == 0:
		return since >= max(interval, listingShare*r.took)
	case since >= interval:
		return true
	}
	untried := 0
	for _, w := range r.list {
		if w.failures == 0 {
			untried++
		}
	}
	return r.all > len(r.list) && untried <= r.most/2
}

// pick returns the oldest window that is ready.
func (r *restingWindows) pick(now time.Time) (*restingWindow, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.list {
		if !w.ready().After(now) {
			return w, true
		}
	}
	return nil, false
}

// finish removes a window from the list or, after an error, schedules the next attempt.
func (r *restingWindows) finish(w *restingWindow, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.list, w)
	switch {
	case i < 0: // the window was listed again in the meantime
	case err == nil:
		r.list = slices.Delete(r.list, i, i+1)
		r.all--
		r.done++
	default:
		w.fail(err, now)
		w.next = now.Add(retryAfter(w.failures))
	}
}

// status returns the number of waiting windows and the first of them.
func (r *restingWindows) status() RestingStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RestingStatus{Listed: utc(r.listed), Windows: r.all, Done: r.done, First: []RestingWindow{}}
	for _, x := range r.list[:min(len(r.list), shownWindows)] {
		w := RestingWindow{
			Tenant: x.Tenant, Resolution: x.Resolution.String(), Start: instant(x.StartMS), End: instant(x.EndMS),
			Again: x.Again, RestsSince: utc(x.since), Failures: x.failures,
		}
		if x.err != nil {
			w.LastError, w.LastErrorAt = x.err.Error(), utc(x.at)
		}
		s.First = append(s.First, w)
	}
	return s
}

func (r *restingWindows) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}
