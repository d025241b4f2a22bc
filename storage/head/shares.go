package head

import (
	"slices"
	"sync"
)

const (
	// tenantBytes is the estimated size of a tenant without series in the head's account.
	tenantBytes = 1024
	// seriesBytes is the estimated size of a series without its labels, head chunks and aliases.
	seriesBytes = 128
	// MinReserveForKnown is the min number of bytes above the head's bound that are reserved for samples of known
	// series.
	MinReserveForKnown = 4 << 20
	// fairSteps divides the bound into steps; shares are recomputed when the size of the head has changed by one step.
	fairSteps = 128
	// fairAlone defines when a tenant counts as alone: all other tenants together hold less than 1/fairAlone of the
	// bound.
	fairAlone = 16
)

// AddBytes adds n bytes to the size of the head and of a tenant's part of it.
func (h *Head) AddBytes(t *Tenant, n int64) {
	h.bytes.Add(n)
	t.bytes.Add(n)
}

// Bytes returns the estimated memory of the tenant's part of the head.
func (t *Tenant) Bytes() int64 { return t.bytes.Load() }

// addChunkBytes adds n bytes by which a head chunk has grown. Most samples fit into its spare capacity.
func (h *Head) addChunkBytes(st *Chunk, n int) {
	if n != 0 {
		st.gen.bytes.Add(int64(n))
		h.AddBytes(st.series.tenant, int64(n))
	}
}

// RejectsSeries reports whether new series of a tenant are rejected. most is the head's bound in bytes; 0 means
// unbounded. The table shows which samples are accepted:
//
//	size of the head                                  tenants with their fair share or more    other tenants
//	from most                                         no new series                            everything
//	from most + max(most/4, MinReserveForKnown) (1)   nothing                                  everything
//	from most + most/2                                nothing                                  no new series
//	from (1) + most/2                                 nothing                                  nothing
//
// Below most, everything is accepted. Samples in commits that are already queued are added on top, at most the queue's
// size. A batch is accepted as a whole, so that no batch is rejected forever because of its size.
func (h *Head) RejectsSeries(t *Tenant, most int64) bool {
	held := h.bytes.Load()
	return most > 0 && held >= most && (held >= most+most/2 || h.hasFairShare(t, most))
}

// Admission is the decision on samples of known series.
type Admission int

const (
	// Admitted means that the samples are accepted.
	Admitted Admission = iota
	// Full means that the head has no space for any tenant, or that this tenant, which filled it, counts as alone.
	Full
	// OverShare means that this tenant holds its fair share or more.
	OverShare
)

// CheckAdmission reports whether samples of a tenant's known series are accepted. The bound for known series is at
// least a quarter higher than the bound for new series, because accepting a series is useless if its next samples are
// rejected.
func (h *Head) CheckAdmission(t *Tenant, most int64) Admission {
	if !h.IsOverfull(most) {
		return Admitted
	}
	switch {
	case h.bytes.Load()-t.Bytes() < most/fairAlone:
		return Full // other tenants don't need the memory, and more senders retry after 503 than after 429
	case h.hasFairShare(t, most):
		return OverShare
	case h.bytes.Load() >= knownSeriesBound(most)+most/2:
		return Full
	}
	return Admitted
}

// IsOverfull reports whether samples of known series are rejected. It returns true even if only the samples of tenants
// with their fair share or more are rejected.
func (h *Head) IsOverfull(most int64) bool {
	return most > 0 && h.bytes.Load() >= knownSeriesBound(most)
}

func knownSeriesBound(most int64) int64 { return most + max(most/4, MinReserveForKnown) }

// hasFairShare reports whether a tenant holds at least its fair share of a full head.
func (h *Head) hasFairShare(t *Tenant, most int64) bool {
	f := &h.fair
	f.mu.Lock()
	defer f.mu.Unlock()
	held := h.bytes.Load()
	if f.share == 0 || (held-f.held)*fairSteps > most || (f.held-held)*fairSteps > most {
		f.held, f.share = held, h.computeFairShare(most)
	}
	return t.Bytes() >= f.share
}

// fairShare caches the fair share until the size of the head has changed by 1/fairSteps of the bound.
type fairShare struct {
	mu    sync.Mutex
	held  int64 // size of the head when the share was computed
	share int64 // 0: it must be computed
}

// invalidate invalidates the share after samples were sealed.
func (f *fairShare) invalidate() {
	f.mu.Lock()
	f.share = 0
	f.mu.Unlock()
}

// computeFairShare returns the fair share of a tenant: the largest size such that the head stays within the bound if no
// tenant exceeds it. The unused part of a small tenant's equal share is divided among the other tenants.
func (h *Head) computeFairShare(most int64) int64 {
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
