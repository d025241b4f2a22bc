package storage

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
	"github.com/cassia-db/cassia/storage/rollup"
)

// head holds in memory what is durable in the stage and not yet sealed, for queries and for the sealer.
//
//	head ── headTenant ── headMetric ── Series ── head chunk ──┐ one a series and generation
//	     └─ slot partitions (slot, partition) ── generation ─────────┘ knows its stage rows
//
// A generation covers exactly the samples of the stage rows that it names. It is closed when sealing
// begins or a commit fails; then the next commit opens another. It goes, with its head chunks, when all of its
// rows are gone from the stage.
type head struct {
	bytes  atomic.Int64 // estimate of what it holds; see weigh
	series atomic.Int64
	seed   maphash.Seed
	// life is held, for reading, while series are given head chunks, so that none is let go of meanwhile.
	life sync.RWMutex
	// classOf tells the class of a new series; nil: all are in the default one.
	classOf func(labels.Labels) int64

	mu      sync.RWMutex
	tenants map[string]*headTenant
	// fair remembers what a tenant may hold while the head is full.
	fair fairShare

	// parts[p] guards the head chunks of the series that are in partition p of the first period, and so in p, p +
	// the number of parts, … of later ones; and the slot partitions of these.
	parts []headPartition
}

type headPartition struct {
	mu    sync.RWMutex
	slots map[slotPartitionAt]*slotPartition // those that have generations
	// seq is the greatest number that was given to a blob in a slot partition that is no more.
	seq int64
	_   [32]byte // neighbours are locked by different goroutines
}

// slotPartitionAt names a slot partition.
type slotPartitionAt struct {
	slot      int64
	partition int
}

// part returns what guards a partition.
func (h *head) part(partition int) *headPartition { return &h.parts[partition%len(h.parts)] }

// slotPartition is what the head knows of a slot and partition.
type slotPartition struct {
	slot      int64
	partition int
	// seq is the last number given to a blob; slot partitions that come later go on after it, for a number names one
	// content for ever. Only the committer uses it while a generation is open.
	seq  int64
	open *generation // nil: the next commit begins one
	// followed takes what other processes stage, and what is found at the start; nil: nothing yet.
	followed *generation
	// closed generations wait to be sealed.
	closed []*generation
}

// generation is what a stream brought from when it was opened until it was closed.
type generation struct {
	slot *slotPartition
	// start is that of the slot, milliseconds.
	start int64
	// epoch is the seq of its first blob; nextRef numbers its series. Only the committer uses them.
	epoch   int64
	nextRef uint32
	// rows are the stage rows that its head chunks cover: durable, and read back or written by this process.
	rows   rowSet
	chunks []*headChunk
	// definers are those of rows that other writers' later blobs may lean on; only where there are any.
	definers []definer
	// index finds head chunks while the generation belongs to no slot partition; nil: the series know them.
	index map[*Series]*headChunk
	// builder collects the blobs of the commit under way; only the committer uses it.
	builder *streamBuilder
	// bytes is what its head chunks weigh.
	bytes atomic.Int64
	// dropped says that the head has let go of it, and touched when its head chunks last got anything; the partition's lock guards
	// them.
	dropped bool
	touched time.Time
}

// headTenant holds the series of a tenant.
type headTenant struct {
	name    string
	aliases aliasTable
	bytes   atomic.Int64 // estimate of what the head holds of it; see weigh

	mu      sync.RWMutex
	gone    bool // the head doesn't know it any more: another one may have its name
	crowded int  // how often an alias wasn't remembered since all were forgotten
	byID    seriesByID
	metrics map[string]*headMetric
}

// tenantMetric is a metric of a tenant. It is shared by the metric's series.
type tenantMetric struct {
	tenant *headTenant
	metric string
}

// headMetric holds the series of a metric; set is an index of the first of them.
type headMetric struct {
	of     *tenantMetric
	series []*Series
	mu     sync.Mutex
	set    *index.Set
	inSet  int
}

// Series is a series that the head knows, for use with the batch that returned it. There may be millions, so its size counts: it
// fills one of the allocator's size classes, 112 bytes.
type Series struct {
	// cur is the head chunk that took the last sample; it belongs to whoever holds the store's commit lock. dead
	// says that the series was let go of; the head's life guards it.
	cur     *headChunk
	chunks  headChunks // guarded by the part's lock
	dead    bool
	aliases uint8  // how many it has; guarded by the tenant's lock
	class   uint8  // its retention class
	part    uint16 // of the head
	// hash is that of its first alias, and doesn't change once the series can be found. next is the series
	// that a sender named after this one, and most likely will again: Lookup tries it first.
	hash aliasHash
	next atomic.Pointer[Series]

	id     format.SeriesID
	sum    uint64 // of tenant and series set, for partitions
	labels labels.Labels
	*tenantMetric
	// written says where this process last wrote the series' labels row; nil: nowhere. It belongs to whoever seals the partition. Many
	// series share what it points to, which never changes.
	written *writtenOf
}

// writtenOf names a labels row for each resolution.
type writtenOf [resolutions]writtenLabels

// writtenAt returns where the series' labels row of a resolution was last written.
func (s *Series) writtenAt(res rollup.Resolution) writtenLabels {
	if s.written == nil {
		return writtenLabels{}
	}
	return s.written[res]
}

// writtenLabels names a row of labels; the zero value names none.
type writtenLabels struct {
	window int64
	at     format.ClassShard
	some   bool
	life   uint32 // which it was written with, where rows vanish by themselves: see lifeOf
}

// resolutions is how many there are: raw, 5m, 1h.
const resolutions = int(rollup.OneHour) + 1

func newHead(partitions int) *head {
	h := &head{seed: maphash.MakeSeed(), tenants: map[string]*headTenant{}, parts: make([]headPartition, partitions)}
	for i := range h.parts {
		h.parts[i].slots = map[slotPartitionAt]*slotPartition{}
	}
	return h
}

func (h *head) tenant(name string) *headTenant {
	h.mu.RLock()
	t := h.tenants[name]
	h.mu.RUnlock()
	if t != nil {
		return t
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t = h.tenants[name]; t == nil {
		t = &headTenant{name: name, metrics: map[string]*headMetric{}}
		h.tenants[name] = t
		h.weigh(t, tenantBytes+int64(len(name)))
	}
	return t
}

// tenantOrNone is tenant for one who may bring nothing: one of whom nothing is known isn't remembered.
func (h *head) tenantOrNone(name string) *headTenant {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.tenants[name]; t != nil {
		return t
	}
	return &headTenant{name: name}
}

// unknown says that the head doesn't remember the tenant.
func (t *headTenant) unknown() bool { return t.metrics == nil }

// define finds or creates the series with these labels, which are the head's from now on. mayEnter is asked whether a
// series that is new may be created, under the tenant's lock; nil: any may.
func (h *head) define(t *headTenant, ls labels.Labels, mayEnter func(*headTenant) error) (*Series, error) {
	set := format.AppendSeriesSet(make([]byte, 0, 256), ls)
	id := format.SeriesIDOfSet(set)
	t.mu.RLock()
	s := t.byID.find(id)
	t.mu.RUnlock()
	if s != nil {
		return s, nil
	}
	hash := xxhash.New()
	_, _ = hash.WriteString(t.name)
	_, _ = hash.Write([]byte{0})
	_, _ = hash.Write(set)
	s = &Series{id: id, labels: ls, sum: hash.Sum64(), part: uint16(format.PartitionOf(hash.Sum64(), len(h.parts)))}
	if h.classOf != nil {
		s.class = uint8(h.classOf(ls))
	}
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
func (h *head) lock(t *headTenant) *headTenant {
	t.mu.Lock()
	for t.gone {
		t.mu.Unlock()
		t = h.tenant(t.name)
		t.mu.Lock()
	}
	return t
}

// insert makes a series of a tenant, whose lock the caller holds, findable.
func (h *head) insert(t *headTenant, s *Series) {
	m := t.metricOf(s)
	if s.tenantMetric == nil { // Others read that of a series that is revived.
		s.tenantMetric = m.of
	}
	m.series = append(m.series, s)
	t.byID.add(s)
	h.weigh(t, s.bytes())
	h.series.Add(1)
}

// metricOf finds or makes the metric of a series. The caller holds the tenant's lock.
func (t *headTenant) metricOf(s *Series) *headMetric {
	name := s.labels.Get(labels.MetricName)
	m := t.metrics[name]
	if m == nil {
		of := s.tenantMetric
		if of == nil {
			of = &tenantMetric{t, strings.Clone(name)} // The name of the labels would keep all of them.
		}
		m = &headMetric{of: of}
		t.metrics[of.metric] = m
	}
	return m
}

// bytes is about what a series weighs in the head's account without its head chunks. The caller holds the tenant's lock.
func (s *Series) bytes() int64 {
	return headSeriesBytes + int64(s.labels.ByteSize()) + int64(s.aliases)*aliasBytes
}

// reinsert brings back a series that was let go of while a batch still held it, or returns the one that
// took its place. The caller doesn't hold life.
func (h *head) reinsert(s *Series) *Series {
	h.life.Lock()
	defer h.life.Unlock()
	t := h.lock(s.tenant)
	defer t.mu.Unlock()
	if known := t.byID.find(s.id); known != nil {
		return known // s, where another goroutine was faster.
	}
	if t != s.tenant {
		s = &Series{id: s.id, sum: s.sum, labels: s.labels, class: s.class, part: s.part}
		h.insert(t, s)
		return s
	}
	s.aliases = 0              // They were forgotten with it.
	s.dead, s.cur = false, nil // What is written of its labels stays so, and a seal may be under way.
	h.insert(t, s)
	return s
}

// gc removes the series that have no head chunks, and the tenants that have no series. The caller holds the commit lock.
func (h *head) gc() int {
	h.life.Lock()
	defer h.life.Unlock()
	gone := 0
	h.mu.RLock()
	tenants := make([]*headTenant, 0, len(h.tenants))
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
func (h *head) forget(t *headTenant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.gone = true
	delete(h.tenants, t.name)
	h.weigh(t, -tenantBytes-int64(len(t.name)))
}

func (h *head) letGoOf(t *headTenant, name string, m *headMetric) int {
	idle := func(s *Series) bool {
		p := &h.parts[s.part]
		p.mu.RLock()
		defer p.mu.RUnlock()
		return s.chunks.isEmpty()
	}
	keep := make([]*Series, 0, len(m.series))
	for _, s := range m.series {
		if !idle(s) {
			keep = append(keep, s)
			continue
		}
		s.dead, s.cur = true, nil
		s.next.Store(nil) // or the dead would keep each other
		h.weigh(t, -s.bytes())
		h.series.Add(-1)
	}
	gone := len(m.series) - len(keep)
	switch {
	case len(keep) == 0:
		delete(t.metrics, name)
	case gone > 0:
		t.metrics[name] = &headMetric{of: m.of, series: keep}
	}
	return gone
}

// slotPartition returns the slot partition of a slot and partition. The caller holds the partition's lock for writing.
func (p *headPartition) slotPartition(slot int64, partition int) *slotPartition {
	at := slotPartitionAt{slot, partition}
	c := p.slots[at]
	if c == nil {
		c = &slotPartition{slot: slot, partition: partition, seq: p.seq}
		p.slots[at] = c
	}
	return c
}

// slots lists those of a partition that the head has something of.
func (h *head) slots(partition int) []int64 {
	p := h.part(partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	var slots []int64
	for at := range p.slots {
		if at.partition == partition {
			slots = append(slots, at.slot)
		}
	}
	return slots
}

// closeGeneration ends the open generations of a slot partition, so that they can be sealed. The caller holds the
// commit lock and the partition's.
func (c *slotPartition) closeGeneration() {
	if c.open != nil {
		c.closed = append(c.closed, c.open)
		c.open = nil
	}
	if c.followed != nil {
		c.closed = append(c.closed, c.followed)
		c.followed = nil
	}
}

// follow returns the generation that takes what others stage of the slot partition, whose slot starts then. The caller holds the
// partition's lock.
func (c *slotPartition) follow(start int64) *generation {
	if c.followed == nil {
		c.followed = &generation{slot: c, start: start}
	}
	return c.followed
}

// drop removes generations of a slot partition with their head chunks.
func (h *head) drop(c *slotPartition, gens []*generation) {
	gone := make(map[*generation]bool, len(gens))
	for _, g := range gens {
		gone[g] = true
	}
	p := h.part(c.partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range gens {
		if g.dropped { // A seal and Forget may both find that it is sealed.
			continue
		}
		g.dropped = true
		for _, st := range g.chunks {
			s := st.series
			h.weigh(s.tenant, -st.bytes())
			s.chunks = s.chunks.without(st)
		}
	}
	keep := c.closed[:0:0]
	for _, g := range c.closed {
		if !gone[g] {
			keep = append(keep, g)
		}
	}
	c.closed = keep
	if c.open == nil && c.followed == nil && len(keep) == 0 {
		p.seq = max(p.seq, c.seq)
		delete(p.slots, slotPartitionAt{c.slot, c.partition})
	}
	h.fair.stale()
}
