package head

import (
	"slices"
	"sync"
)

const (
	// tenantBytes is about what a tenant without series weighs in the head's account.
	tenantBytes = 1024
	// seriesBytes is about what a series weighs without its labels, head chunks and aliases.
	seriesBytes = 128
	// LeastForKnown is what samples of known series have at least beyond the bound of the head, bytes.
	LeastForKnown = 4 << 20
	// fairSteps is into how many parts the bound is divided of which one may pass before shares are computed anew.
	fairSteps = 128
	// fairAlone is which part of the bound all others together hold less than where a tenant is as good as alone.
	fairAlone = 16
)

// Weigh adds to what the head holds, and to what it holds of a tenant.
func (h *Head) Weigh(t *Tenant, n int64) {
	h.bytes.Add(n)
	t.bytes.Add(n)
}

// Bytes is about how much memory the head takes for the tenant.
func (t *Tenant) Bytes() int64 { return t.bytes.Load() }

// grew adds what a head chunk has grown by. Most samples fit into the room that it has.
func (h *Head) grew(st *Chunk, n int) {
	if n != 0 {
		st.gen.bytes.Add(int64(n))
		h.Weigh(st.series.tenant, int64(n))
	}
}

// RefusesSeries reports whether the head takes no new series of a tenant; most is its bound, 0: none.
//
//	            most     + most/4, known series   + most/2
//	──────────────┼────────────────┼──────────────────┼───────────────────────┼─────►
//	 all is taken │ no new series  │ nothing          │                       │
//	              │ of who holds its fair share or more                       │
//	 all is taken, also new series, of who holds less │ no new series of them │ nothing of anybody
//
// Samples under way already come on top, at most the queue. A batch is taken as a whole however large it is, so that
// none is refused for ever.
func (h *Head) RefusesSeries(t *Tenant, most int64) bool {
	held := h.bytes.Load()
	return most > 0 && held >= most && (held >= most+most/2 || h.holdsItsShare(t, most))
}

// Admission is whether the head takes samples of known series.
type Admission int

const (
	// Admitted: it does.
	Admitted Admission = iota
	// Full: it has no room for anybody, or the tenant that has filled it is as good as alone.
	Full
	// OverShare: this tenant holds its share or more.
	OverShare
)

// Admits reports whether the head takes samples of a tenant, of known series at least.
// Known series have a quarter more than new ones, which would come to nothing if those had to stop with them.
func (h *Head) Admits(t *Tenant, most int64) Admission {
	if !h.Overfull(most) {
		return Admitted
	}
	switch {
	case h.bytes.Load()-t.Bytes() < most/fairAlone:
		return Full // It isn't that others need the memory, and more senders try again after 503 than after 429.
	case h.holdsItsShare(t, most):
		return OverShare
	case h.bytes.Load() >= boundOfKnown(most)+most/2:
		return Full
	}
	return Admitted
}

// Overfull reports whether the head takes no samples of known series, at least of who holds most.
func (h *Head) Overfull(most int64) bool { return most > 0 && h.bytes.Load() >= boundOfKnown(most) }

func boundOfKnown(most int64) int64 { return most + max(most/4, LeastForKnown) }

// holdsItsShare reports whether the head holds as much of a tenant as it fairly may while it is full.
func (h *Head) holdsItsShare(t *Tenant, most int64) bool {
	f := &h.fair
	f.mu.Lock()
	defer f.mu.Unlock()
	held := h.bytes.Load()
	if f.share == 0 || (held-f.held)*fairSteps > most || (f.held-held)*fairSteps > most {
		f.held, f.share = held, h.shareOf(most)
	}
	return t.Bytes() >= f.share
}

// fairShare caches the fair share until the held bytes have changed by a fairSteps-th of the bound.
type fairShare struct {
	mu    sync.Mutex
	held  int64 // by the head, when the share was computed
	share int64 // 0: it must be computed
}

// stale has the share computed anew: something was sealed.
func (f *fairShare) stale() {
	f.mu.Lock()
	f.share = 0
	f.mu.Unlock()
}

// shareOf divides the bound among the tenants: it is the most that each may hold so that together they hold no more.
// What a tenant doesn't use of its equal part is for the others, so that many small ones don't make it small.
func (h *Head) shareOf(most int64) int64 {
	h.mu.RLock()
	held := make([]int64, 0, len(h.tenants))
	for _, t := range h.tenants {
		held = append(held, t.Bytes())
	}
	h.mu.RUnlock()
	slices.Sort(held)
	rest := most
	for i, n := range held {
		if equal := rest / int64(len(held)-i); n > equal {
			return max(1, equal)
		}
		rest -= n
	}
	return max(1, most)
}
