package head

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

// Stream is the state of decoding a writer's blobs in one slot partition: the series that these blobs define.
type Stream struct {
	epochs  map[int64]*epochRefs
	damaged bool
}

// MarkDamaged records that a blob of the stream is unreadable.
func (st *Stream) MarkDamaged() { st.damaged = true }

// IsDamaged reports whether a blob of the stream is unreadable.
func (st *Stream) IsDamaged() bool { return st.damaged }

// PruneEpochs releases the definitions of old epochs. If a later blob depends on them, they are read again.
func (st *Stream) PruneEpochs() {
	const kept = 2
	for len(st.epochs) > kept {
		oldest, first := int64(0), true
		for epoch := range st.epochs {
			if first || epoch < oldest {
				oldest, first = epoch, false
			}
		}
		delete(st.epochs, oldest)
	}
}

// ReleaseDefinitions releases all definitions of the stream.
func (st *Stream) ReleaseDefinitions() { st.epochs = nil }

// epochRefs are the series of an epoch by number, starting at 1. All series with numbers up to whole are known.
type epochRefs struct {
	refs  []streamRef
	whole uint32
}

// streamRef is a series and the head chunk of its last sample.
type streamRef struct {
	series *Series
	chunk  *Chunk
}

// maxStreamSeries bounds the gap between the numbers of a stream's series, which occurs if blobs are missing.
const maxStreamSeries = 1 << 24

func (e *epochRefs) set(ref uint32, s *Series) error {
	if uint64(ref) > uint64(len(e.refs))+maxStreamSeries {
		return fmt.Errorf("%w: series number %d is out of range", format.ErrMalformedBlob, ref)
	}
	for uint64(len(e.refs)) <= uint64(ref) {
		e.refs = append(e.refs, streamRef{})
	}
	if e.refs[ref].series != s {
		e.refs[ref] = streamRef{series: s}
	}
	for uint64(e.whole)+1 < uint64(len(e.refs)) && e.refs[e.whole+1].series != nil {
		e.whole++
	}
	return nil
}

// definer is a row of the staging log that defines series, starting with number before+1.
type definer struct {
	row    format.StageRow
	epoch  int64
	before uint32
	series []*Series
}

var (
	// ErrDependsOnCorrupt means that a blob depends on an unreadable blob.
	ErrDependsOnCorrupt = fmt.Errorf("%w: it has samples of series defined in an earlier, corrupt blob",
		format.ErrMalformedBlob)
	// ErrUndefined means that a blob depends on missing blobs, which may arrive later.
	ErrUndefined = errors.New("storage: a blob depends on missing blobs")
)

// Learner passes the definitions of series to a decoder. It reads them from the blobs of the same writer that precede
// the row before, starting with the first blob of the epoch of the blob being decoded.
type Learner func(ctx context.Context, d *Decoder, before format.StageRow) error

// Decoder decodes blobs of one slot partition: it defines their series and collects their samples.
type Decoder struct {
	h     *Head
	at    SlotPartition
	learn Learner

	reader  format.BlobReader
	epoch   *epochRefs
	defined []*Series
	samples []readSample
	orphans int // number of samples of undefined series
	builder labels.ScratchBuilder
}

// readSample is a decoded sample.
type readSample struct {
	ref      uint32
	t, st    int64
	v        uint64
	hist     []byte // nil: a float, or an exemplar
	exemplar []byte
}

// NewDecoder returns a decoder for the blobs of a slot partition.
func NewDecoder(h *Head, at SlotPartition, learn Learner) *Decoder {
	return &Decoder{h: h, at: at, learn: learn}
}

// sampleBuffers are unused buffers of type *[]readSample. Readers of a whole staging log use one decoder per slot, one
// after the other.
var sampleBuffers sync.Pool

// Release releases the samples of the last blob, and their buffer for other decoders. The decoder can then decode the
// next blob.
func (d *Decoder) Release() {
	buffer := d.samples[:cap(d.samples)]
	d.defined, d.samples, d.orphans = nil, nil, 0
	if len(buffer) > 0 {
		clear(buffer) // the samples refer to blobs
		buffer = buffer[:0]
		sampleBuffers.Put(&buffer)
	}
}

// SlotPartition returns the slot partition of the blobs.
func (d *Decoder) SlotPartition() SlotPartition { return d.at }

// Epoch returns the epoch of the open blob, which is the number of the epoch's first blob.
func (d *Decoder) Epoch() int64 { return d.reader.Epoch }

// Orphans returns the number of samples in the last blob whose series aren't defined.
func (d *Decoder) Orphans() int { return d.orphans }

// open decodes the header of a blob and finds its epoch in the stream.
func (d *Decoder) open(st *Stream, b []byte) error {
	if d.samples == nil {
		if buffer, ok := sampleBuffers.Get().(*[]readSample); ok {
			d.samples = *buffer
		}
	}
	d.defined, d.samples, d.orphans = d.defined[:0], d.samples[:0], 0
	if err := d.reader.Open(b); err != nil {
		return err
	}
	if st.epochs == nil {
		st.epochs = map[int64]*epochRefs{}
	}
	if d.epoch = st.epochs[d.reader.Epoch]; d.epoch == nil {
		d.epoch = &epochRefs{}
		st.epochs[d.reader.Epoch] = d.epoch
	}
	return nil
}

// Decode decodes a blob of the stream, including the definitions that the blob depends on. Afterwards the decoder holds
// the samples. If definitions are missing, samples of undefined series are dropped. However, if no blob of the stream
// is damaged and mayWait returns true, Decode returns ErrUndefined instead.
func (d *Decoder) Decode(ctx context.Context, st *Stream, r format.StageRow, b []byte, mayWait func() bool) error {
	if err := d.open(st, b); err != nil {
		return err
	}
	if d.hasUndefined() {
		if err := d.readDefinitions(ctx, r); err != nil {
			return err
		}
		if d.hasUndefined() && !st.damaged && mayWait() {
			return ErrUndefined
		}
	}
	return d.reader.Walk(d)
}

// readDefinitions reads the definitions in the blobs before the open one. It restores the decoder's state afterwards.
func (d *Decoder) readDefinitions(ctx context.Context, before format.StageRow) error {
	open := d.reader
	defer func() { d.reader, d.defined, d.samples, d.orphans = open, d.defined[:0], d.samples[:0], 0 }()
	return d.learn(ctx, d, before)
}

// AddDefinitions adds the definitions of a blob that belongs to the open epoch. It ignores blobs of other epochs. It
// also ignores corrupt blobs, which are reported when their samples are read.
func (d *Decoder) AddDefinitions(blob []byte) {
	var reader format.BlobReader
	if err := reader.Open(blob); err == nil && reader.Epoch == d.reader.Epoch {
		_ = reader.Walk(&definitions{d: d})
	}
}

// definitions collects a blob's definitions and ignores its samples.
type definitions struct{ d *Decoder }

func (x *definitions) Define(ref uint32, tenant string, ls labels.Labels) error {
	return x.d.Define(ref, tenant, ls)
}

// Float ignores the sample.
func (*definitions) Float(uint32, int64, int64, uint64) error { return nil }

// Histogram ignores the sample.
func (*definitions) Histogram(uint32, int64, []byte) error { return nil }

// Exemplar ignores the exemplar.
func (*definitions) Exemplar(uint32, int64, []byte) error { return nil }

// hasUndefined reports whether the open blob depends on unknown definitions.
func (d *Decoder) hasUndefined() bool { return d.reader.Before > d.epoch.whole }

// CopyDefinitionsTo adds the last decoded blob's definitions, if it has any, to a generation.
func (d *Decoder) CopyDefinitionsTo(g *Generation, r format.StageRow) {
	if len(d.defined) > 0 {
		g.definers = append(g.definers, definer{
			row: r, epoch: d.reader.Epoch, before: d.reader.Before, series: slices.Clone(d.defined),
		})
	}
}

// Define implements format.BlobSink, as do the following methods.
func (d *Decoder) Define(ref uint32, tenant string, ls labels.Labels) error {
	s, err := d.h.Define(d.h.Tenant(tenant), ls, nil)
	if err != nil {
		return err
	}
	if p := d.h.PartitionOf(s, d.at.Slot); p != d.at.Partition {
		return fmt.Errorf("%w: a series belongs to partition %d", format.ErrMalformedBlob, p)
	}
	d.defined = append(d.defined, s)
	return d.epoch.set(ref, s)
}

func (d *Decoder) Float(ref uint32, t, st int64, v uint64) error {
	return d.addSample(readSample{ref: ref, t: t, st: st, v: v})
}

func (d *Decoder) Histogram(ref uint32, t int64, encoded []byte) error {
	// Head chunks rely on histograms being valid.
	if _, err := chunk.ParseHistogram(encoded); err != nil {
		return err
	}
	return d.addSample(readSample{ref: ref, t: t, hist: encoded})
}

func (d *Decoder) Exemplar(ref uint32, t int64, encoded []byte) error {
	if _, err := format.ParseExemplar(t, encoded, &d.builder); err != nil {
		return err
	}
	return d.addSample(readSample{ref: ref, t: t, exemplar: encoded})
}

func (d *Decoder) addSample(r readSample) error {
	if slot := d.h.period.SlotOf(r.t); slot != d.at.Slot {
		return fmt.Errorf("%w: a sample at %d belongs to slot %d", format.ErrMalformedBlob, r.t, slot)
	}
	if uint64(r.ref) >= uint64(len(d.epoch.refs)) || d.epoch.refs[r.ref].series == nil {
		d.orphans++
		return nil
	}
	d.samples = append(d.samples, r)
	return nil
}

// AddTo adds the samples to a generation. If the generation belongs to a slot partition, the partition's lock and the
// head's life must be held, and the samples are added to the head's account.
func (d *Decoder) AddTo(g *Generation) {
	for i := range d.samples {
		r := &d.samples[i]
		ref, grew := &d.epoch.refs[r.ref], 0
		if ref.chunk == nil || ref.chunk.gen != g {
			var isNew bool
			if ref.chunk, isNew = g.headChunkOf(ref.series); isNew {
				grew = chunkBytes
			}
		}
		switch {
		case r.hist != nil:
			grew += ref.chunk.appendHistogram(r.t, r.hist)
		case r.exemplar != nil:
			grew += ref.chunk.appendExemplar(r.t, r.exemplar)
		default:
			grew += ref.chunk.appendFloat(r.t, r.st, r.v)
		}
		if g.index == nil {
			d.h.addChunkBytes(ref.chunk, grew)
		}
	}
}

// firstReleased returns a series of the samples that the head has released, or nil. life must be held.
func (d *Decoder) firstReleased() *streamRef {
	for i := range d.samples {
		if ref := &d.epoch.refs[d.samples[i].ref]; ref.series.dead {
			return ref
		}
	}
	return nil
}
