package head

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
)

// Head holds in memory the samples that are durable in the staging log and not yet sealed, for queries and for the
// sealer.
//
//	Head ── Tenant ── metricMembers ── Series ── Chunk ──┐ one per series and generation
//	     └─ openSlot (slot, partition) ── Generation ────┘ lists its rows of the staging log
//
// Invariant: a generation covers exactly the samples of the rows that it lists. A generation is closed when sealing
// starts or a commit fails; the next commit then opens another generation. A generation is released with its head
// chunks when all of its rows have been deleted from the staging log.
type Head struct {
	bytes  atomic.Int64 // estimated size of the head, see AddBytes
	series atomic.Int64
	seed   maphash.Seed
	// life must be held for reading while head chunks are added to series, so that the series aren't released
	// concurrently.
	life   sync.RWMutex
	period *format.Periods

	mu      sync.RWMutex
	tenants map[string]*Tenant
	// fair caches the memory that a tenant may use while the head is full.
	fair fairShare

	// parts[p] guards the head chunks of the series in partition p of the first period and, if later periods have more
	// partitions, in p + len(parts), p + 2 * len(parts), …; and the openSlots of these partitions.
	parts []guardedPartition
}

type guardedPartition struct {
	mu    sync.RWMutex
	slots map[SlotPartition]*openSlot // the slot partitions with generations
	// failed are the slot partitions in which a commit has failed since they were sealed. They may have staged blobs
	// that the head doesn't contain. The value is true if a seal has started since the last failed commit.
	failed map[SlotPartition]bool
	// seq is the highest number of any blob in the slot partitions that have been removed.
	seq int64
	_   [24]byte // padding: neighbors are locked by different goroutines
}

// Tenant holds the series of a tenant.
type Tenant struct {
	name    string
	aliases aliasTable
	bytes   atomic.Int64 // estimated size of the tenant's part of the head, see AddBytes

	mu      sync.RWMutex
	gone    bool // removed from the head; a new Tenant may have its name
	crowded int  // number of rejected aliases since all aliases were deleted
	byID    seriesByID
	metrics map[string]*metricMembers
}

// metricMembers holds the series of a metric. set is an index of the first inSet series.
type metricMembers struct {
	of     *TenantMetric
	series []*Series
	mu     sync.Mutex
	set    *index.Set
	inSet  int
}

// New returns an empty head. partitions is the number of partitions in the store's first period.
func New(partitions int, period *format.Periods) *Head {
	h := &Head{
		seed: maphash.MakeSeed(), period: period, tenants: map[string]*Tenant{},
		parts: make([]guardedPartition, partitions),
	}
	for i := range h.parts {
		h.parts[i].slots, h.parts[i].failed = map[SlotPartition]*openSlot{}, map[SlotPartition]bool{}
	}
	return h
}

// Tenant finds or creates a tenant.
func (h *Head) Tenant(name string) *Tenant {
	h.mu.RLock()
	t := h.tenants[name]
	h.mu.RUnlock()
	if t != nil {
		return t
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t = h.tenants[name]; t == nil {
		t = &Tenant{name: name, metrics: map[string]*metricMembers{}}
		h.tenants[name] = t
		h.AddBytes(t, tenantBytes+int64(len(name)))
	}
	return t
}

// TenantOrNone is like Tenant, but doesn't store an unknown tenant, which may never send samples.
func (h *Head) TenantOrNone(name string) *Tenant {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.tenants[name]; t != nil {
		return t
	}
	return &Tenant{name: name}
}

// IsUnknown reports whether the tenant isn't in the head.
func (t *Tenant) IsUnknown() bool { return t.metrics == nil }

// Define finds or creates the series with the given labels, which the head then owns. If mayEnter isn't nil, Define
// calls it under the tenant's lock before creating a series, and returns the error of mayEnter instead of creating the
// series.
func (h *Head) Define(t *Tenant, ls labels.Labels, mayEnter func(*Tenant) error) (*Series, error) {
	set := format.AppendSeriesSet(make([]byte, 0, 256), ls)
	id := format.SeriesIDOfSet(set)
	t.mu.RLock()
	s := t.byID.find(id)
	t.mu.RUnlock()
	if s != nil {
		return s, nil
	}
	s = &Series{id: id, labels: ls, part: uint16(format.PartitionOf(partitionHashOf(t.name, set), len(h.parts)))}
	t = h.lockTenant(t)
	defer t.mu.Unlock()
	if known := t.byID.find(id); known != nil {
		return known, nil
	}
	if mayEnter != nil {
		if err := mayEnter(t); err != nil {
			return nil, err
		}
	}
	h.insertSeries(t, s)
	return s, nil
}

// lockTenant locks the tenant, or the tenant that replaced it under its name if the head has released it.
func (h *Head) lockTenant(t *Tenant) *Tenant {
	t.mu.Lock()
	for t.gone {
		t.mu.Unlock()
		t = h.Tenant(t.name)
		t.mu.Lock()
	}
	return t
}

// insertSeries adds a series of a tenant to the indexes. The tenant's lock must be held.
func (h *Head) insertSeries(t *Tenant, s *Series) {
	m := t.metricOf(s)
	if s.TenantMetric == nil { // not set again: other goroutines may read the field of a revived series
		s.TenantMetric = m.of
	}
	m.series = append(m.series, s)
	t.byID.add(s)
	h.AddBytes(t, s.bytes())
	h.series.Add(1)
}

// metricOf finds or creates the metric of a series. The tenant's lock must be held.
func (t *Tenant) metricOf(s *Series) *metricMembers {
	name := s.labels.Get(labels.MetricName)
	m := t.metrics[name]
	if m == nil {
		of := s.TenantMetric
		if of == nil {
			// A name that shares memory with the labels would keep all labels in memory.
			of = &TenantMetric{t, strings.Clone(name)}
		}
		m = &metricMembers{of: of}
		t.metrics[of.metric] = m
	}
	return m
}

// reinsertSeries returns a released series, which a batch still holds, to the head. If another series has replaced it,
// reinsertSeries returns the other series. life must not be held.
func (h *Head) reinsertSeries(s *Series) *Series {
	h.life.Lock()
	defer h.life.Unlock()
	t := h.lockTenant(s.tenant)
	defer t.mu.Unlock()
	if known := t.byID.find(s.id); known != nil {
		return known // s itself if another goroutine was faster
	}
	if t != s.tenant {
		s = &Series{id: s.id, labels: s.labels, part: s.part}
		h.insertSeries(t, s)
		return s
	}
	s.aliases = 0  // they were deleted when it was released
	s.dead = false // written stays valid: its labels rows still exist, and a seal may be running
	h.insertSeries(t, s)
	return s
}

// GC releases the series without head chunks, and the tenants without series. It returns the number of released series.
// The commit lock must be held.
func (h *Head) GC() int {
	h.life.Lock()
	defer h.life.Unlock()
	gone := 0
	h.mu.RLock()
	tenants := make([]*Tenant, 0, len(h.tenants))
	for _, t := range h.tenants {
		tenants = append(tenants, t)
	}
	h.mu.RUnlock()
	for _, t := range tenants {
		t.mu.Lock()
		before := gone
		for name, m := range t.metrics {
			gone += h.releaseMetricSeries(t, name, m)
		}
		if gone > before {
			dead := func(s *Series) bool { return s.dead }
			t.aliases.remove(dead)
			t.byID.remove(dead)
		}
		if t.byID.len() == 0 {
			h.removeTenant(t)
		}
		t.mu.Unlock()
	}
	return gone
}

// removeTenant removes a tenant without series. Its lock must be held.
func (h *Head) removeTenant(t *Tenant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.gone = true
	delete(h.tenants, t.name)
	h.AddBytes(t, -tenantBytes-int64(len(t.name)))
}

func (h *Head) releaseMetricSeries(t *Tenant, name string, m *metricMembers) int {
	idle := func(s *Series) bool {
		p := &h.parts[s.part]
		p.mu.RLock()
		defer p.mu.RUnlock()
		return s.chunks().IsEmpty()
	}
	keep := make([]*Series, 0, len(m.series))
	for _, s := range m.series {
		if !idle(s) {
			keep = append(keep, s)
			continue
		}
		s.dead = true
		s.next.Store(nil) // otherwise released series would keep each other in memory
		h.AddBytes(t, -s.bytes())
		h.series.Add(-1)
	}
	gone := len(m.series) - len(keep)
	switch {
	case len(keep) == 0:
		delete(t.metrics, name)
	case gone > 0:
		t.metrics[name] = &metricMembers{of: m.of, series: keep}
	}
	return gone
}

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

// SeriesCount returns the number of the tenant's series in the head. The tenant's lock must be held, see Define.
func (t *Tenant) SeriesCount() int { return t.byID.len() }

// findTenant returns a tenant, or nil.
func (h *Head) findTenant(tenant string) *Tenant {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.tenants[tenant]
}

// Tenants returns the names of the tenants in the head.
func (h *Head) Tenants() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.tenants))
}

// ActiveSeries returns the number of a tenant's series in the head.
func (h *Head) ActiveSeries(tenant string) int {
	t := h.findTenant(tenant)
	if t == nil {
		return 0
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID.len()
}

// SeriesOfMetric returns the number of a metric's series in the head.
func (t *Tenant) SeriesOfMetric(metric string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if m := t.metrics[metric]; m != nil {
		return len(m.series)
	}
	return 0
}

// Bytes returns the estimated memory of the head.
func (h *Head) Bytes() int64 { return h.bytes.Load() }

// SeriesCount returns the number of series in the head.
func (h *Head) SeriesCount() int64 { return h.series.Load() }

// Partitions returns the number of partitions in the first period of the head's store.
func (h *Head) Partitions() int { return len(h.parts) }

// PartitionOf returns the partition of a series in a slot.
func (h *Head) PartitionOf(s *Series, slot int64) int {
	return h.period.PartitionOf(slot, int(s.part), s.partitionHash)
}
