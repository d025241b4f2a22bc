package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// heldRow is a held row that this process looks after.
type heldRow struct {
	epoch      int64
	replica    string
	writer     string
	seq        int64
	minT, maxT int64
	reach      int64
	samples    int
	bytes      int64
}

func (h *heldRow) key() engine.Key {
	return format.HeldKey(h.replica, h.writer, h.seq)
}

// heldBuilder makes held values of samples.
type heldBuilder struct {
	w      format.BlobWriter
	refs   map[*Series]uint32
	now    format.HeldValue
	some   bool  // now has anything
	fresh  reach // without samples
	reach  reach // of now
	values [][]byte
	about  []format.HeldValue
}

func (b *heldBuilder) begin() {
	b.refs = map[*Series]uint32{}
	b.w.Reset(0, 0)
	b.now, b.some = format.HeldValue{}, false
}

// ref returns the number of a series in the blob, which defines it if need be.
func (b *heldBuilder) ref(s *Series) uint32 {
	ref := b.refs[s]
	if ref == 0 {
		ref = uint32(len(b.refs)) + 1
		b.refs[s] = ref
		b.w.Define(s.Tenant(), s.Labels())
	}
	return ref
}

func (b *heldBuilder) add(e *head.Sample) {
	b.room(e.T)
	b.now.Samples++
	b.reach.add(e.T)
	if ref := b.ref(e.Series); e.Hist != nil {
		b.w.Histogram(ref, e.T, e.Hist)
	} else {
		b.w.Float(ref, e.T, e.ST, e.V)
	}
}

// addExemplar adds an exemplar, which doesn't count as a sample.
func (b *heldBuilder) addExemplar(e *head.EncodedExemplar) {
	b.room(e.T)
	b.w.Exemplar(b.ref(e.Series), e.T, e.Data)
}

// room makes room for one more, at t.
func (b *heldBuilder) room(t int64) {
	if b.refs == nil {
		b.begin()
	} else if b.w.Len() >= format.HeldFull {
		b.cut()
		b.begin()
	}
	if !b.some {
		b.now.MinT, b.now.MaxT, b.some, b.reach = t, t, true, b.fresh
	}
	b.now.MinT, b.now.MaxT = min(b.now.MinT, t), max(b.now.MaxT, t)
}

// cut ends a value.
func (b *heldBuilder) cut() {
	if !b.some {
		return
	}
	b.now.Reach = b.reach.ms()
	b.values = append(b.values, format.AppendHeld(nil, b.now, b.w.Finish()))
	b.about = append(b.about, b.now)
	b.now, b.some = format.HeldValue{}, false
}

// readHeld reads one held row; ok is false when it is gone.
func (s *Store) readHeld(ctx context.Context, at clusterName, h *heldRow) (value []byte, ok bool, err error) {
	key := h.key()
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Held, Partition: format.HeldPartition(at.tenant, at.cluster, h.epoch), From: key, To: key, Limit: 1}) {
		if err != nil {
			return nil, false, fmt.Errorf("storage: reading a held row: %w", err)
		}
		return slices.Clone(row.Value), true, nil
	}
	return nil, false, nil
}

// heldWords tells what a held row has.
func heldWords(value []byte) (string, error) {
	v, err := format.ParseHeld(value)
	if err != nil {
		return "", err
	}
	blob, err := v.Unpack()
	if err != nil {
		return "", err
	}
	words, err := blobWords(blob)
	return fmt.Sprintf("%d bytes, %d samples: %s", len(value), v.Samples, words), err
}
