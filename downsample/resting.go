package downsample

import (
	"fmt"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage"
)

const (
	// overRest is for how long nothing must have been written to a window that is over before it is compacted, or its series counted, and
	// overAgainRest where that was done before: samples that come late trickle.
	overRest      = 30 * time.Second
	overAgainRest = 6 * time.Hour
)

// restingWindows are windows that are over and wait to be worked on until they rest: of rollups to be compacted, or of raw rows whose series are to be counted.
type restingWindows struct {
	mu   sync.Mutex
	list []restingWindow // the oldest first
}

// restingWindow is a window, and since when nothing was written to it.
type restingWindow struct {
	storage.OverWindow
	streak
	since time.Time
	next  time.Time // not before
}

// set replaces the list by a newer one.
func (r *restingWindows) set(list []storage.OverWindow, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := map[string]*restingWindow{}
	for i := range r.list {
		before[r.list[i].key()] = &r.list[i]
	}
	fresh := make([]restingWindow, len(list))
	for i := range list {
		fresh[i] = restingWindow{OverWindow: list[i], since: now}
		if b, ok := before[fresh[i].key()]; ok {
			fresh[i].streak, fresh[i].next = b.streak, b.next
			if b.Same(&list[i]) && !b.since.After(now) { // Else the clock went back.
				fresh[i].since = b.since
			}
		}
	}
	r.list = fresh
}

func (w *restingWindow) key() string { return fmt.Sprint(w.Window, " ", w.Tenant) }

// rests reports whether a window has rested for long enough.
func (w *restingWindow) rests(now time.Time) bool {
	rest := overRest
	if w.Again {
		rest = overAgainRest
	}
	return now.Sub(w.since) >= rest && !w.next.After(now)
}

// pick returns the oldest window that may be worked on.
func (r *restingWindows) pick(now time.Time) (restingWindow, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.list {
		if x.rests(now) {
			return x, true
		}
	}
	return restingWindow{}, false
}

// done takes a window off the list, or notes that it failed.
func (r *restingWindows) done(of *restingWindow, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		x := &r.list[i]
		if x.key() != of.key() {
			continue
		}
		if err == nil {
			r.list = append(r.list[:i:i], r.list[i+1:]...)
			return
		}
		x.fail(err, now)
		x.next = now.Add(min(retryMost, retryFirst<<min(x.failures-1, 10)))
		return
	}
}

// status returns how many windows wait, and of those the first.
func (r *restingWindows) status() RestingStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RestingStatus{Windows: len(r.list), First: []RestingWindow{}}
	for _, x := range r.list[:min(len(r.list), shownWindows)] {
		w := RestingWindow{
			Tenant: x.Tenant, Resolution: x.Resolution.String(), Start: instant(x.StartMS), End: instant(x.EndMS), Again: x.Again,
			RestsSince: utc(x.since), Failures: x.failures,
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
	return len(r.list)
}
