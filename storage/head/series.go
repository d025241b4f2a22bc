package head

import (
	"bytes"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TenantMetric is a metric of a tenant. The metric's series share it.
type TenantMetric struct {
	tenant *Tenant
	metric string
}

// MetricOf returns a metric of a tenant for series outside of a head.
func MetricOf(tenant, metric string) *TenantMetric {
	return &TenantMetric{&Tenant{name: tenant}, metric}
}

// Series returns a new series outside of a head.
func (m *TenantMetric) Series(id format.SeriesID, ls labels.Labels) *Series {
	return &Series{id: id, labels: ls, TenantMetric: m}
}

// Series is a series in the head, for use with the batch that returned it. There may be millions, so its size matters:
// it fills an allocator size class of 96 bytes.
type Series struct {
	// cur and more are the head chunks, see Chunks. They change under the partition's lock only. If this process
	// ingests the samples, cur is the head chunk of the last sample; holders of the store's commit lock may read cur
	// without the partition's lock.
	cur  atomic.Pointer[Chunk]
	more *[]*Chunk
	// dead is set once the series was released from the head; the head's life guards it.
	dead    bool
	aliases uint8  // number of aliases; guarded by the tenant's lock
	part    uint16 // partition in the first period
	// class is the retention class in the lowest 8 bits; the other bits are the tag of the list of classes that
	// determined it, see ClassForTag.
	class atomic.Uint32
	// hash is the hash of the first alias, and doesn't change once the series can be found. next is the series that a
	// sender sent after this one: Lookup tries it first.
	hash AliasHash
	next atomic.Pointer[Series]

	id     format.SeriesID
	labels labels.Labels
	*TenantMetric
	// written lists where a seal of this process last wrote the series' labels rows. It is nil if no seal has.
	// Concurrent seals of slots in two periods may both set it if the series is in two partitions; then the labels rows
	// of one of the seals are written again. Many series share the value it points to, which is immutable.
	written atomic.Pointer[Written]
}

// ID returns the series' id.
func (s *Series) ID() format.SeriesID { return s.id }

// IDText returns the id as a string that shares the series' memory. The id never changes.
func (s *Series) IDText() string { return unsafe.String(&s.id[0], len(s.id)) }

// chunks returns the head chunks. The partition's lock must be held.
func (s *Series) chunks() Chunks { return Chunks{s.cur.Load(), s.more} }

// setChunks sets the head chunks. The partition's lock must be held for writing.
func (s *Series) setChunks(l Chunks) {
	s.cur.Store(l.one)
	s.more = l.many
}

// partitionHash returns the hash of the tenant and the series set that determines partitions. Most stores need it once
// per series, in Define. It is recomputed only in stores whose number of partitions has grown.
func (s *Series) partitionHash() uint64 {
	var buf [256]byte
	return partitionHashOf(s.tenant.name, format.AppendSeriesSet(buf[:0], s.labels))
}

func partitionHashOf(tenant string, set []byte) uint64 {
	var hash xxhash.Digest
	hash.Reset()
	_, _ = hash.WriteString(tenant)
	_, _ = hash.Write([]byte{0})
	_, _ = hash.Write(set)
	return hash.Sum64()
}

// CompareID compares series by id.
func (s *Series) CompareID(o *Series) int { return bytes.Compare(s.id[:], o.id[:]) }

// Labels returns the series' labels, including the metric's name.
func (s *Series) Labels() labels.Labels { return s.labels }

// Tenant returns the name of the series' tenant.
func (s *Series) Tenant() string { return s.tenant.name }

// TenantOfHead returns the tenant of the series in its head.
func (s *Series) TenantOfHead() *Tenant { return s.tenant }

// Metric returns the name of the series' metric.
func (s *Series) Metric() string { return s.metric }

// ClassForTag returns the retention class of the series. ok is false unless it was set for the list of classes with
// this tag. The tag must not be 0.
func (s *Series) ClassForTag(tag uint32) (class int64, ok bool) {
	v := s.class.Load()
	return int64(v & 0xff), v>>8 == tag
}

// SetClass sets the class that the list of classes with this tag determines. It replaces the class that another list
// determined.
func (s *Series) SetClass(tag uint32, class int64) { s.class.Store(tag<<8 | uint32(class)) }

// Written gives the location of a labels row for each resolution.
type Written [rollup.OneHour + 1]WrittenRow

// WrittenRow is the location of a labels row; the zero value means none.
type WrittenRow struct {
	Window int64
	At     format.ClassShard
	Some   bool
}

// Written returns where the series' labels rows were last written.
func (s *Series) Written() Written {
	if w := s.written.Load(); w != nil {
		return *w
	}
	return Written{}
}

// WrittenAt returns where the series' labels row of a resolution was last written.
func (s *Series) WrittenAt(res rollup.Resolution) WrittenRow {
	if w := s.written.Load(); w != nil {
		return w[res]
	}
	return WrittenRow{}
}

// SetWritten sets where the series' labels rows were last written. w is shared by many series and must not change.
func (s *Series) SetWritten(w *Written) { s.written.Store(w) }

// bytes returns the estimated size of a series in the head's account without its head chunks. The tenant's lock must be
// held.
func (s *Series) bytes() int64 {
	return seriesBytes + int64(s.labels.ByteSize()) + int64(s.aliases)*aliasBytes
}
