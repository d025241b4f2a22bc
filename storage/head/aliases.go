package head

import (
	"hash/maphash"

	"github.com/cespare/xxhash/v2"
)

// HashAlias returns two independent hashes of key, a sender's name for a series. The second hash can't be predicted
// outside of this process. Equal keys of different spaces are different aliases.
func (h *Head) HashAlias(key []byte, space uint64) AliasHash {
	return AliasHash{xxhash.Sum64(key), maphash.Bytes(h.seed, key) ^ space}
}

// aliasBytes is the estimated size of an alias in the head's account.
const aliasBytes = 32

// maxAliases bounds the aliases of one series. A series has multiple aliases if senders name it differently and rules
// make the labels equal. Further aliases aren't stored: Define is called for them each time. All of a tenant's aliases
// are deleted once the number of its rejected aliases exceeds both crowdedAliases and the number of its series. This
// makes room for the aliases in current use.
const (
	maxAliases     = 8
	crowdedAliases = 1024
)

// AddAlias adds key as an alias of the series in a space, see HashAlias.
func (h *Head) AddAlias(key []byte, space uint64, s *Series) {
	t, hash := s.tenant, h.HashAlias(key, space)
	// The tenant's lock prevents the release of the series.
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
		h.clearAliases(t)
	}
	if s.hash == (AliasHash{}) {
		s.hash = hash // set before the series can be found, and never changed
	}
	t.aliases.add(hash, s)
	s.aliases++
	h.AddBytes(t, aliasBytes)
}

// clearAliases deletes the aliases of all series of a tenant. The series stay. The tenant's lock must be held.
func (h *Head) clearAliases(t *Tenant) {
	t.aliases.clear()
	t.crowded = 0
	for s := range t.byID.all() {
		h.AddBytes(t, -int64(s.aliases)*aliasBytes)
		s.aliases = 0
	}
}

// ClearAliases deletes the aliases of all series of the selected tenants.
func (h *Head) ClearAliases(of func(tenant string) bool) {
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
		h.clearAliases(t)
		t.mu.Unlock()
	}
}

// Lookup returns the series with an alias, or nil. before is the series that the sender sent just before, or nil.
// Lookup first tries the next series of before: the series that followed it when it was last sent.
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
