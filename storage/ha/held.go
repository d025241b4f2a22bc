package ha

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// HeldTimestamp is the write timestamp of held rows. The constant is sufficient, because a key never has two different
// values. Rows are deleted with the same timestamp.
const HeldTimestamp = 1

// HeldID identifies a held row of a cluster.
type HeldID struct {
	Epoch           int64
	Replica, Writer string
	Seq             int64
}

// Key returns the row's clustering key.
func (h *HeldID) Key() engine.Key { return format.HeldKey(h.Replica, h.Writer, h.Seq) }

// heldRow is a held row that this process owns.
type heldRow struct {
	HeldID
	minT, maxT int64
	reach      int64
	samples    int
	bytes      int64
}

func idsOf(rows []heldRow) []HeldID {
	ids := make([]HeldID, len(rows))
	for i := range rows {
		ids[i] = rows[i].HeldID
	}
	return ids
}

// LabeledSeries is a series of a batch. Two series are the same only if the interface values are equal.
type LabeledSeries interface{ Labels() labels.Labels }

// HeldBuilder encodes samples of a tenant as values of held rows.
type HeldBuilder struct {
	tenant string
	w      format.BlobWriter
	refs   map[LabeledSeries]uint32
	now    format.HeldValue
	some   bool  // true if now isn't empty
	fresh  reach // an empty reach, with which each value starts
	reach  reach // reach of the samples in now
	values [][]byte
	about  []format.HeldValue
}

func (b *HeldBuilder) begin() {
	b.refs = map[LabeledSeries]uint32{}
	b.w.Reset(0, 0)
	b.now, b.some = format.HeldValue{}, false
}

// seriesRef returns the number of a series in the blob. It defines the series on first use.
func (b *HeldBuilder) seriesRef(s LabeledSeries) uint32 {
	ref := b.refs[s]
	if ref == 0 {
		ref = uint32(len(b.refs)) + 1
		b.refs[s] = ref
		b.w.Define(b.tenant, s.Labels())
	}
	return ref
}

// Float adds a sample.
func (b *HeldBuilder) Float(s LabeledSeries, t, st int64, v uint64) {
	b.countSample(t)
	b.w.Float(b.seriesRef(s), t, st, v)
}

// Histogram adds a sample in its encoded form.
func (b *HeldBuilder) Histogram(s LabeledSeries, t int64, encoded []byte) {
	b.countSample(t)
	b.w.Histogram(b.seriesRef(s), t, encoded)
}

func (b *HeldBuilder) countSample(t int64) {
	b.beginEntry(t)
	b.now.Samples++
	b.reach.add(t)
}

// Exemplar adds an exemplar in its encoded form. It isn't counted as a sample.
func (b *HeldBuilder) Exemplar(s LabeledSeries, t int64, encoded []byte) {
	b.beginEntry(t)
	b.w.Exemplar(b.seriesRef(s), t, encoded)
}

// beginEntry prepares for an entry at t. If the current value is full, it starts another one.
func (b *HeldBuilder) beginEntry(t int64) {
	if b.refs == nil {
		b.begin()
	} else if b.w.Len() >= format.HeldFull {
		b.finishValue()
		b.begin()
	}
	if !b.some {
		b.now.MinT, b.now.MaxT, b.some, b.reach = t, t, true, b.fresh
	}
	b.now.MinT, b.now.MaxT = min(b.now.MinT, t), max(b.now.MaxT, t)
}

// finishValue completes the current value.
func (b *HeldBuilder) finishValue() {
	if !b.some {
		return
	}
	b.now.Reach = b.reach.ms()
	b.values = append(b.values, format.AppendHeld(nil, b.now, b.w.Finish()))
	b.about = append(b.about, b.now)
	b.now, b.some = format.HeldValue{}, false
}

// readHeld reads one held row. ok is false if it was deleted.
func (r *Tracker) readHeld(ctx context.Context, at ClusterName, h *HeldID) (value []byte, ok bool, err error) {
	key := h.Key()
	for row, err := range r.env.Engine.Scan(ctx, engine.Range{
		Table: engine.Held, Partition: format.HeldPartition(at.Tenant, at.Cluster, h.Epoch), From: key, To: key,
		Limit: 1,
	}) {
		if err != nil {
			return nil, false, fmt.Errorf("ha: reading held samples: %w", err)
		}
		return slices.Clone(row.Value), true, nil
	}
	return nil, false, nil
}

// sampleCount returns the number of samples in the values.
func (b *HeldBuilder) sampleCount() (n int) {
	for i := range b.about {
		n += b.about[i].Samples
	}
	return n
}
