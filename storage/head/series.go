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

// TenantMetric is a metric of a tenant. It is shared by the metric's series.
type TenantMetric struct {
	tenant *Tenant
	metric string
}

// MetricOf returns a metric of a tenant for series that are in no head.
func MetricOf(tenant, metric string) *TenantMetric {
	return &TenantMetric{&Tenant{name: tenant}, metric}
}

// Series makes a series that is in no head.
func (m *TenantMetric) Series(id format.SeriesID, ls labels.Labels) *Series {
	return &Series{id: id, labels: ls, TenantMetric: m}
}

// Series is a series of the head, for use with the batch that returned it. There may be millions, so its size counts: it
// fills one of the allocator's size classes, 96 bytes.
type Series struct {
	// cur and more are the head chunks, see Chunks, and change under the part's lock only. cur is also that which took the last sample, where
	// this process brings the samples: whoever holds the store's commit lock reads it without the part's.
	cur  atomic.Pointer[Chunk]
	more *[]*Chunk
	// dead is true once the series was removed from the head; the head's life guards it.
	dead    bool
	aliases uint8  // how many it has; guarded by the tenant's lock
	part    uint16 // of the head
	// class is its retention class, in the lowest 8 bits, by the list with the tag in the others, see ClassBy.
	class atomic.Uint32
	// hash is that of its first alias, and doesn't change once the series can be found. next is the series
	// that a sender named after this one, and most likely will again: Lookup tries it first.
	hash AliasHash
	next atomic.Pointer[Series]

	id     format.SeriesID
	labels labels.Labels
	*TenantMetric
	// written is where a seal of this process last wrote the series' labels rows; nil: nowhere. Two seals may set it at once, of slots of
	// two periods, where the series is in two partitions: then the rows of one of them are written again. Many series share what it
	// points to, which never changes.
	written atomic.Pointer[Written]
}

// ID returns the series' id.
func (s *Series) ID() format.SeriesID { return s.id }

// IDText returns the id as a text in the series' memory, which it keeps there. The id never changes.
func (s *Series) IDText() string { return unsafe.String(&s.id[0], len(s.id)) }

// chunks returns the head chunks. The caller holds the part's lock.
func (s *Series) chunks() Chunks { return Chunks{s.cur.Load(), s.more} }

// setChunks makes l the head chunks. The caller holds the part's lock for writing.
func (s *Series) setChunks(l Chunks) {
	s.cur.Store(l.one)
	s.more = l.many
}

// sum is the hash of the tenant and the series set that partitions go by. Most stores need it once for each series, in
// Define; only those whose partitions were multiplied compute it again.
func (s *Series) sum() uint64 {
	var buf [256]byte
	return sumOf(s.tenant.name, format.AppendSeriesSet(buf[:0], s.labels))
}

func sumOf(tenant string, set []byte) uint64 {
	var hash xxhash.Digest
	hash.Reset()
	_, _ = hash.WriteString(tenant)
	_, _ = hash.Write([]byte{0})
	_, _ = hash.Write(set)
	return hash.Sum64()
}

// CompareID orders series by their ids.
func (s *Series) CompareID(o *Series) int { return bytes.Compare(s.id[:], o.id[:]) }

// Labels returns the series' labels, with the metric's name.
func (s *Series) Labels() labels.Labels { return s.labels }

// Tenant returns the name of the tenant whose series it is.
func (s *Series) Tenant() string { return s.tenant.name }

// TenantOfHead returns the tenant of the series in its head.
func (s *Series) TenantOfHead() *Tenant { return s.tenant }

// Metric returns the name of the series' metric.
func (s *Series) Metric() string { return s.metric }

// ClassBy returns the series' retention class by the list of classes with a tag, which isn't 0, if it was set for that.
func (s *Series) ClassBy(tag uint32) (class int64, ok bool) {
	v := s.class.Load()
	return int64(v & 0xff), v>>8 == tag
}

// SetClass sets the series' class by a list, in place of that by another one.
func (s *Series) SetClass(tag uint32, class int64) { s.class.Store(tag<<8 | uint32(class)) }

// Written names a labels row for each resolution.
type Written [rollup.OneHour + 1]WrittenRow

// WrittenRow names a row of labels; the zero value names none.
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

// SetWritten notes where the series' labels rows were last written. Many series share what w points to, which never changes.
func (s *Series) SetWritten(w *Written) { s.written.Store(w) }

// bytes is about what a series weighs in the head's account without its head chunks. The caller holds the tenant's lock.
func (s *Series) bytes() int64 {
	return seriesBytes + int64(s.labels.ByteSize()) + int64(s.aliases)*aliasBytes
}
