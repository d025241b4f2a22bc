package head

import (
	"hash/maphash"

	"github.com/cespare/xxhash/v2"
)

// HashAlias returns two independent hashes of what a sender names a series with; the second one nobody
// outside of this process can foresee.
func (h *Head) HashAlias(key []byte, space uint64) AliasHash {
	return AliasHash{xxhash.Sum64(key), maphash.Bytes(h.seed, key) ^ space}
}

// aliasBytes is about what an alias weighs in the head's account.
const aliasBytes = 32

// maxAliases bounds the aliases of one series. A series has several where senders name it differently and rules make their labels the
// same. One alias more than that isn't remembered: Define is called for it each time. Once that has happened more than
// crowdedAliases times and more often than the tenant has series, all aliases are forgotten, so that old ones make room.
const (
	maxAliases     = 8
	crowdedAliases = 1024
)

// Remember makes key an alias of the series.
func (h *Head) Remember(key []byte, space uint64, s *Series) {
	t, hash := s.tenant, h.HashAlias(key, space)
	// The tenant's lock keeps the series from being let go of meanwhile.
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID.find(s.id) != s {
		return
	}
	if t.aliases.find(hash) != nil {
		return
	}
	if s.aliases >= maxAliases {
		if t.crowded++; t.crowded <= crowdedAliases+t.byID.len() {
			return
		}
		h.forgetAliases(t)
	}
	if s.hash == (AliasHash{}) {
		s.hash = hash // before it can be found, and never again
	}
	t.aliases.add(hash, s)
	s.aliases++
	h.Weigh(t, aliasBytes)
}

// forgetAliases forgets the names of all series of a tenant, whose lock the caller holds. The series stay.
func (h *Head) forgetAliases(t *Tenant) {
	t.aliases.clear()
	t.crowded = 0
	for s := range t.byID.all() {
		h.Weigh(t, -int64(s.aliases)*aliasBytes)
		s.aliases = 0
	}
}

// ForgetAliases forgets under which aliases the series of some tenants were found.
func (h *Head) ForgetAliases(of func(tenant string) bool) {
	h.mu.RLock()
	tenants := make([]*Tenant, 0, len(h.tenants))
	for name, t := range h.tenants {
		if of(name) {
			tenants = append(tenants, t)
		}
	}
	h.mu.RUnlock()
	for _, t := range tenants {
		t.mu.Lock()
		h.forgetAliases(t)
		t.mu.Unlock()
	}
}

// Lookup returns the series of an alias, or nil. before is the series that the sender named before this one, or nil: most
// likely the same one follows on it again.
func (t *Tenant) Lookup(hash AliasHash, before *Series) *Series {
	if before != nil {
		if next := before.next.Load(); next != nil && next.hash == hash {
			return next
		}
	}
	s := t.aliases.find(hash)
	if s != nil && before != nil {
		before.next.Store(s)
	}
	return s
}
