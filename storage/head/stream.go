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

// Stream is the state of decoding a writer's blobs in one slot and partition: the series that they define.
type Stream struct {
	epochs  map[int64]*epochRefs
	damaged bool
}

// Damage notes that a blob of the stream can't be read.
func (st *Stream) Damage() { st.damaged = true }

// Damaged reports whether a blob of the stream can't be read.
func (st *Stream) Damaged() bool { return st.damaged }

// Prune lets go of what old epochs defined: a blob that leans on them after all has it looked up.
func (st *Stream) Prune() {
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

// Forget lets go of all that the stream defined.
func (st *Stream) Forget() { st.epochs = nil }

// epochRefs are the series of an epoch by number, from 1; those up to whole are all known.
type epochRefs struct {
	refs  []streamRef
	whole uint32
}

// streamRef is a series, with the head chunk that took its last sample.
type streamRef struct {
	series *Series
	chunk  *Chunk
}

// maxStreamSeries bounds how far the numbers of a stream's series may jump where blobs are missing.
const maxStreamSeries = 1 << 24

func (e *epochRefs) set(ref uint32, s *Series) error {
	if uint64(ref) > uint64(len(e.refs))+maxStreamSeries {
		return fmt.Errorf("%w: series number %d", format.ErrMalformedBlob, ref)
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

// definer is a stage row that defines series, the first of which has the number before+1.
type definer struct {
	row    format.StageRow
	epoch  int64
	before uint32
	series []*Series
}

var (
	// ErrLeansOnCorrupt means that a blob leans on one that can't be read.
	ErrLeansOnCorrupt = fmt.Errorf("%w: it has samples of series defined in an earlier, corrupt blob", format.ErrMalformedBlob)
	// ErrUndefined means that a blob leans on others that aren't there, and may still come.
	ErrUndefined = errors.New("storage: a blob depends on missing blobs")
)

// Learner has a decoder learn what the blobs before a stage row of its writer defined, from the first one of the open blob's epoch on.
type Learner func(ctx context.Context, d *Decoder, before format.StageRow) error

// Decoder reads blobs of one slot and partition: it defines their series and collects their samples.
type Decoder struct {
	h     *Head
	at    SlotPartition
	learn Learner

	reader  format.BlobReader
	epoch   *epochRefs
	defined []*Series
	samples []readSample
	orphans int // samples of series that aren't defined
	builder labels.ScratchBuilder
}

// readSample is a sample as a blob has it.
type readSample struct {
	ref      uint32
	t, st    int64
	v        uint64
	hist     []byte // nil: a float, or an exemplar
	exemplar []byte
}

// NewDecoder makes a decoder of the blobs of a slot partition.
func NewDecoder(h *Head, at SlotPartition, learn Learner) *Decoder {
	return &Decoder{h: h, at: at, learn: learn}
}

// sampleBuffers are buffers of samples that no decoder uses, *[]readSample: who reads a whole stage has a decoder for each slot, one after
// the other.
var sampleBuffers sync.Pool

// Release lets go of what the blob just read gave, and leaves its memory to other decoders. The next blob may be read afterwards.
func (d *Decoder) Release() {
	buffer := d.samples[:cap(d.samples)]
	d.defined, d.samples, d.orphans = nil, nil, 0
	if len(buffer) > 0 {
		clear(buffer) // They refer to blobs.
		buffer = buffer[:0]
		sampleBuffers.Put(&buffer)
	}
}

// At returns the slot partition whose blobs it reads.
func (d *Decoder) At() SlotPartition { return d.at }

// Epoch returns the epoch of the open blob: the number of its first one.
func (d *Decoder) Epoch() int64 { return d.reader.Epoch }

// Orphans returns how many samples of the blob just read are of series that aren't defined.
func (d *Decoder) Orphans() int { return d.orphans }

// open reads the head of a blob of the stream, and finds its epoch.
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

// Decode reads a blob of the stream, with what it leans on; then the decoder has its samples. Where that isn't
// found and no blob of the stream is damaged, mayWait decides whether to end with ErrUndefined, or to leave out
// the samples that nothing explains.
func (d *Decoder) Decode(ctx context.Context, st *Stream, r format.StageRow, b []byte, mayWait func() bool) error {
	if err := d.open(st, b); err != nil {
		return err
	}
	if d.undefined() {
		if err := d.lookUp(ctx, r); err != nil {
			return err
		}
		if d.undefined() && !st.damaged && mayWait() {
			return ErrUndefined
		}
	}
	return d.reader.Walk(d)
}

// lookUp learns what the blobs before the open one defined. Afterwards the decoder is as it was.
func (d *Decoder) lookUp(ctx context.Context, before format.StageRow) error {
	open := d.reader
	defer func() { d.reader, d.defined, d.samples, d.orphans = open, d.defined[:0], d.samples[:0], 0 }()
	return d.learn(ctx, d, before)
}

// LearnFrom takes the definitions of a blob of the epoch that is open; others, and corrupt ones, it leaves out: corrupt blobs are named
// when their samples are asked for.
func (d *Decoder) LearnFrom(blob []byte) {
	var reader format.BlobReader
	if err := reader.Open(blob); err == nil && reader.Epoch == d.reader.Epoch {
		_ = reader.Walk(&definitions{d: d})
	}
}

// definitions takes a blob's definitions and none of its samples.
type definitions struct{ d *Decoder }

// Define takes a definition.
func (x *definitions) Define(ref uint32, tenant string, ls labels.Labels) error {
	return x.d.Define(ref, tenant, ls)
}

// Float takes nothing.
func (*definitions) Float(uint32, int64, int64, uint64) error { return nil }

// Histogram takes nothing.
func (*definitions) Histogram(uint32, int64, []byte) error { return nil }

// Exemplar takes nothing.
func (*definitions) Exemplar(uint32, int64, []byte) error { return nil }

// undefined reports whether the open blob leans on definitions that aren't known.
func (d *Decoder) undefined() bool { return d.reader.Before > d.epoch.whole }

// NoteDefinitions has a generation remember what the blob just read defines, where it defines anything.
func (d *Decoder) NoteDefinitions(g *Generation, r format.StageRow) {
	if len(d.defined) > 0 {
		g.definers = append(g.definers, definer{row: r, epoch: d.reader.Epoch, before: d.reader.Before, series: slices.Clone(d.defined)})
	}
}

// Define implements format.BlobSink, as what follows does.
func (d *Decoder) Define(ref uint32, tenant string, ls labels.Labels) error {
	s, err := d.h.Define(d.h.Tenant(tenant), ls, nil)
	if err != nil {
		return err
	}
	if p := d.h.PartitionOf(s, d.at.Slot); p != d.at.Partition {
		return fmt.Errorf("%w: a series of partition %d", format.ErrMalformedBlob, p)
	}
	d.defined = append(d.defined, s)
	return d.epoch.set(ref, s)
}

// Float takes one of the blob.
func (d *Decoder) Float(ref uint32, t, st int64, v uint64) error {
	return d.sample(readSample{ref: ref, t: t, st: st, v: v})
}

// Histogram takes one of the blob.
func (d *Decoder) Histogram(ref uint32, t int64, encoded []byte) error {
	// A head chunk takes what can be read back for granted.
	if _, err := chunk.ParseHistogram(encoded); err != nil {
		return err
	}
	return d.sample(readSample{ref: ref, t: t, hist: encoded})
}

// Exemplar takes one of the blob.
func (d *Decoder) Exemplar(ref uint32, t int64, encoded []byte) error {
	if _, err := format.ParseExemplar(t, encoded, &d.builder); err != nil {
		return err
	}
	return d.sample(readSample{ref: ref, t: t, exemplar: encoded})
}

func (d *Decoder) sample(r readSample) error {
	if slot := d.h.period.SlotOf(r.t); slot != d.at.Slot {
		return fmt.Errorf("%w: a sample at %d, of slot %d", format.ErrMalformedBlob, r.t, slot)
	}
	if uint64(r.ref) >= uint64(len(d.epoch.refs)) || d.epoch.refs[r.ref].series == nil {
		d.orphans++
		return nil
	}
	d.samples = append(d.samples, r)
	return nil
}

// AddTo appends the samples to a generation. Where it belongs to a slot partition, the caller holds the partition's lock, and the
// head's life, and what they weigh is added to the head's account.
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
			d.h.grew(ref.chunk, grew)
		}
	}
}

// firstDead returns a series of the samples that the head has let go of, or nil. The caller holds life.
func (d *Decoder) firstDead() *streamRef {
	for i := range d.samples {
		if ref := &d.epoch.refs[d.samples[i].ref]; ref.series.dead {
			return ref
		}
	}
	return nil
}
