package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

// stream is what is known of a writer's blobs in one slot and partition: the series that they define.
type stream struct {
	epochs map[int64]*epochRefs
	// damaged says that a blob of the stream can't be read.
	damaged bool
	place   place // of a stream that is followed
	// workedOff are its rows that were sealed when they were asked for.
	workedOff workedOff
	asked     bool
}

// epochRefs are the series of an epoch by number, from 1; those up to whole are all known.
type epochRefs struct {
	refs  []streamRef
	whole uint32
}

// streamRef is a series, with the head chunk that took its last sample.
type streamRef struct {
	series *Series
	strand *headChunk
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
	errLeansOnCorrupt = fmt.Errorf("%w: it has samples of series that a corrupt blob before it defines", format.ErrMalformedBlob)
	// errUndefined says that a blob leans on others that aren't there, and may still come.
	errUndefined = errors.New("storage: a blob without the blobs that it leans on")
)

// blobDecoder reads blobs of one slot and partition: it defines their series and collects their samples.
type blobDecoder struct {
	s         *Store
	slot      int64
	partition int

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

// open reads the head of a blob of the stream, and finds its epoch.
func (d *blobDecoder) open(st *stream, b []byte) error {
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

// decode reads a blob of the stream, with what it leans on; then the decoder has its samples. Where that isn't
// found and no blob of the stream is damaged, mayWait decides whether to end with errUndefined, or to leave out
// the samples that nothing explains.
func (d *blobDecoder) decode(ctx context.Context, st *stream, r format.StageRow, b []byte, mayWait func() bool) error {
	if err := d.open(st, b); err != nil {
		return err
	}
	if d.undefined() {
		if err := d.s.learn(ctx, d, r); err != nil {
			return err
		}
		if d.undefined() && !st.damaged && mayWait() {
			return errUndefined
		}
	}
	return d.reader.Walk(d)
}

// undefined says whether the open blob leans on definitions that aren't known.
func (d *blobDecoder) undefined() bool { return d.reader.Before > d.epoch.whole }

// definer returns what the blob just read defines.
func (d *blobDecoder) definer(r format.StageRow) definer {
	return definer{row: r, epoch: d.reader.Epoch, before: d.reader.Before, series: slices.Clone(d.defined)}
}

func (d *blobDecoder) Define(ref uint32, tenant string, ls labels.Labels) error {
	s, err := d.s.head.define(d.s.head.tenant(tenant), ls, nil)
	if err != nil {
		return err
	}
	if p := d.s.partitionOf(s, d.slot); p != d.partition {
		return fmt.Errorf("%w: a series of partition %d", format.ErrMalformedBlob, p)
	}
	d.defined = append(d.defined, s)
	return d.epoch.set(ref, s)
}

func (d *blobDecoder) Float(ref uint32, t, st int64, v uint64) error {
	return d.sample(readSample{ref: ref, t: t, st: st, v: v})
}

func (d *blobDecoder) Histogram(ref uint32, t int64, encoded []byte) error {
	// A head chunk takes what can be read back for granted.
	if _, err := chunk.ParseHistogram(encoded); err != nil {
		return err
	}
	return d.sample(readSample{ref: ref, t: t, hist: encoded})
}

func (d *blobDecoder) Exemplar(ref uint32, t int64, encoded []byte) error {
	if _, err := format.ParseExemplar(t, encoded, &d.builder); err != nil {
		return err
	}
	return d.sample(readSample{ref: ref, t: t, exemplar: encoded})
}

func (d *blobDecoder) sample(r readSample) error {
	if slot := d.s.period.SlotOf(r.t); slot != d.slot {
		return fmt.Errorf("%w: a sample at %d, of slot %d", format.ErrMalformedBlob, r.t, slot)
	}
	if uint64(r.ref) >= uint64(len(d.epoch.refs)) || d.epoch.refs[r.ref].series == nil {
		d.orphans++
		return nil
	}
	d.samples = append(d.samples, r)
	return nil
}

// addTo appends the samples to a generation. Where it belongs to a slot partition, the caller holds the partition's lock, and the
// head's life, and what they weigh is added to the head's account.
func (d *blobDecoder) addTo(g *generation) {
	for i := range d.samples {
		r := &d.samples[i]
		ref, grew := &d.epoch.refs[r.ref], 0
		if ref.strand == nil || ref.strand.gen != g {
			var isNew bool
			if ref.strand, isNew = g.headChunkOf(ref.series); isNew {
				grew = headChunkBytes
			}
		}
		switch {
		case r.hist != nil:
			grew += ref.strand.appendHistogram(r.t, r.hist)
		case r.exemplar != nil:
			grew += ref.strand.appendExemplar(r.t, r.exemplar)
		default:
			grew += ref.strand.appendFloat(r.t, r.st, r.v)
		}
		if g.index == nil {
			d.s.head.grew(ref.strand, grew)
		}
	}
}

// headChunkOf finds or makes the head chunk of a series.
func (g *generation) headChunkOf(s *Series) (st *headChunk, isNew bool) {
	if g.index != nil {
		if st = g.index[s]; st == nil {
			st = newHeadChunk(g, s)
			g.index[s] = st
			g.chunks = append(g.chunks, st)
		}
		return st, false
	}
	for st := range s.chunks.all() {
		if st.gen == g {
			return st, false
		}
	}
	st = newHeadChunk(g, s)
	s.chunks = s.chunks.with(st)
	g.chunks = append(g.chunks, st)
	return st, true
}
