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

// Head holds in memory the samples that are durable in the stage and not yet sealed, for queries and for the sealer.
//
//	Head ── Tenant ── metricMembers ── Series ── Chunk ──┐ one per series and generation
//	     └─ openSlot (slot, partition) ── Generation ────┘ lists its stage rows
//
// A generation covers exactly the samples of the stage rows that it names. It is closed when sealing
// begins or a commit fails; then the next commit opens another. It goes, with its head chunks, when all of its
// rows are gone from the stage.
type Head struct {
	bytes  atomic.Int64 // estimate of what it holds; see Weigh
	series atomic.Int64
	seed   maphash.Seed
	// life is held, for reading, while series are given head chunks, so that none is let go of meanwhile.
	life   sync.RWMutex
	period *format.Periods

	mu      sync.RWMutex
	tenants map[string]*Tenant
	// fair remembers what a tenant may hold while the head is full.
	fair fairShare

	// parts[p] guards the head chunks of the series that are in partition p of the first period, and so in p, p +
	// the number of parts, … of later ones; and the slot partitions of these.
	parts []guardedPartition
}

type guardedPartition struct {
	mu    sync.RWMutex
	slots map[SlotPartition]*openSlot // those that have generations
	// seq is the greatest number that was given to a blob in a slot partition that is no more.
	seq int64
	_   [32]byte // neighbours are locked by different goroutines
}

// Tenant holds the series of a tenant.
type Tenant struct {
	name    string
	aliases aliasTable
	bytes   atomic.Int64 // estimate of what the head holds of it; see Weigh

	mu      sync.RWMutex
	gone    bool // it was removed from the head: another one may have its name
	crowded int  // how often an alias wasn't remembered since all were forgotten
	byID    seriesByID
	metrics map[string]*metricMembers
}

// metricMembers holds the series of a metric; set is an index of the first of them.
type metricMembers struct {
	of     *TenantMetric
	series []*Series
	mu     sync.Mutex
	set    *index.Set
	inSet  int
}

// New makes an empty head for a store whose first period has so many partitions.
func New(partitions int, period *format.Periods) *Head {
	h := &Head{
		seed: maphash.MakeSeed(), period: period, tenants: map[string]*Tenant{}, parts: make([]guardedPartition, partitions),
	}
	for i := range h.parts {
		h.parts[i].slots = map[SlotPartition]*openSlot{}
	}
	return h
}

// Tenant finds or makes a tenant.
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
		h.Weigh(t, tenantBytes+int64(len(name)))
	}
	return t
}

// TenantOrNone is Tenant for one who may bring nothing: one of whom nothing is known isn't remembered.
func (h *Head) TenantOrNone(name string) *Tenant {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.tenants[name]; t != nil {
		return t
	}
	return &Tenant{name: name}
}

// Unknown reports whether the tenant isn't in the head.
func (t *Tenant) Unknown() bool { return t.metrics == nil }

// Define finds or creates the series with these labels, which are the head's from now on. mayEnter is asked whether a
// series that is new may be created, under the tenant's lock; nil: any may.
func (h *Head) Define(t *Tenant, ls labels.Labels, mayEnter func(*Tenant) error) (*Series, error) {
	set := format.AppendSeriesSet(make([]byte, 0, 256), ls)
	id := format.SeriesIDOfSet(set)
	t.mu.RLock()
	s := t.byID.find(id)
	t.mu.RUnlock()
	if s != nil {
		return s, nil
	}
	s = &Series{id: id, labels: ls, part: uint16(format.PartitionOf(sumOf(t.name, set), len(h.parts)))}
	t = h.lock(t)
	defer t.mu.Unlock()
	if known := t.byID.find(id); known != nil {
		return known, nil
	}
	if mayEnter != nil {
		if err := mayEnter(t); err != nil {
			return nil, err
		}
	}
	h.insert(t, s)
	return s, nil
}

// lock locks the tenant, or the one that has its name since the head let go of it.
func (h *Head) lock(t *Tenant) *Tenant {
	t.mu.Lock()
	for t.gone {
		t.mu.Unlock()
		t = h.Tenant(t.name)
		t.mu.Lock()
	}
	return t
}

// insert makes a series of a tenant, whose lock the caller holds, findable.
func (h *Head) insert(t *Tenant, s *Series) {
	m := t.metricOf(s)
	if s.TenantMetric == nil { // Others read that of a series that is revived.
		s.TenantMetric = m.of
	}
	m.series = append(m.series, s)
	t.byID.add(s)
	h.Weigh(t, s.bytes())
	h.series.Add(1)
}

// metricOf finds or makes the metric of a series. The caller holds the tenant's lock.
func (t *Tenant) metricOf(s *Series) *metricMembers {
	name := s.labels.Get(labels.MetricName)
	m := t.metrics[name]
	if m == nil {
		of := s.TenantMetric
		if of == nil {
			of = &TenantMetric{t, strings.Clone(name)} // The name of the labels would keep all of them.
		}
		m = &metricMembers{of: of}
		t.metrics[of.metric] = m
	}
	return m
}

// reinsert brings back a series that was let go of while a batch still held it, or returns the one that
// took its place. The caller doesn't hold life.
func (h *Head) reinsert(s *Series) *Series {
	h.life.Lock()
	defer h.life.Unlock()
	t := h.lock(s.tenant)
	defer t.mu.Unlock()
	if known := t.byID.find(s.id); known != nil {
		return known // s, where another goroutine was faster.
	}
	if t != s.tenant {
		s = &Series{id: s.id, labels: s.labels, part: s.part}
		h.insert(t, s)
		return s
	}
	s.aliases = 0  // They were forgotten with it.
	s.dead = false // written stays: its labels rows still exist, and a seal may be under way.
	h.insert(t, s)
	return s
}

// GC removes the series that have no head chunks, and the tenants that have no series. The caller holds the commit lock.
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
			gone += h.letGoOf(t, name, m)
		}
		if gone > before {
			dead := func(s *Series) bool { return s.dead }
			t.aliases.remove(dead)
			t.byID.remove(dead)
		}
		if t.byID.len() == 0 {
			h.forget(t)
		}
		t.mu.Unlock()
	}
	return gone
}

// forget removes a tenant without series. The caller holds its lock.
func (h *Head) forget(t *Tenant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.gone = true
	delete(h.tenants, t.name)
	h.Weigh(t, -tenantBytes-int64(len(t.name)))
}

func (h *Head) letGoOf(t *Tenant, name string, m *metricMembers) int {
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
		s.next.Store(nil) // or the dead would keep each other
		h.Weigh(t, -s.bytes())
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

// Known returns how many series of the tenant, whose lock the caller holds, are in the head: see Define.
func (t *Tenant) Known() int { return t.byID.len() }

// find returns a tenant, or nil.
func (h *Head) find(tenant string) *Tenant {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.tenants[tenant]
}

// Tenants returns the names of the tenants that the head has anything of.
func (h *Head) Tenants() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Keys(h.tenants))
}

// ActiveSeries returns how many series of a tenant are in the head.
func (h *Head) ActiveSeries(tenant string) int {
	t := h.find(tenant)
	if t == nil {
		return 0
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID.len()
}

// SeriesOfMetric returns how many series of a metric are in the head.
func (t *Tenant) SeriesOfMetric(metric string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if m := t.metrics[metric]; m != nil {
		return len(m.series)
	}
	return 0
}

// Bytes is about how much memory the head takes.
func (h *Head) Bytes() int64 { return h.bytes.Load() }

// SeriesCount is how many series are in the head.
func (h *Head) SeriesCount() int64 { return h.series.Load() }

// Partitions is how many partitions the first period of the head's store has.
func (h *Head) Partitions() int { return len(h.parts) }

// PartitionOf returns the partition of a series in a slot.
func (h *Head) PartitionOf(s *Series, slot int64) int {
	return h.period.PartitionOf(slot, int(s.part), s.sum)
}
