package head

import (
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// Sample is one sample of a batch: a float, or a histogram in its encoded form. Times are in milliseconds.
type Sample struct {
	Series *Series
	T, ST  int64
	V      uint64
	Hist   []byte
}

// EncodedExemplar is one exemplar of a batch.
type EncodedExemplar struct {
	Series *Series
	T      int64
	Data   []byte
}

// streamBuilder collects the blobs that a commit adds to one stream, and their samples.
type streamBuilder struct {
	writer    string
	full      int // size in bytes from which a blob gets no further sample
	gen       *Generation
	firstSeq  int64
	w         format.BlobWriter
	some      bool // w has at least one record
	blobs     [][]byte
	items     []stagedItem
	exemplars []stagedExemplar
	// selfContained makes every blob define all of its series; refs holds their numbers. Blobs of old slots must be
	// self-contained, because a sealer may have released the definitions of earlier blobs.
	selfContained bool
	refs          map[*Chunk]uint32
}

type stagedItem struct {
	chunk *Chunk
	entry *Sample
}

type stagedExemplar struct {
	chunk *Chunk
	entry *EncodedExemplar
}

func (b *streamBuilder) reset(g *Generation, alone bool) {
	b.gen, b.firstSeq, b.selfContained = g, g.slot.seq+1, alone
	b.blobs, b.items, b.exemplars = b.blobs[:0], b.items[:0], b.exemplars[:0]
	b.beginBlob()
}

// releaseChunks releases the head chunks of a commit. Otherwise they would stay in memory until the builder is used
// again.
func (b *streamBuilder) releaseChunks() {
	clear(b.items)
	clear(b.exemplars)
	clear(b.refs)
	clear(b.blobs)
	b.gen = nil
}

// beginBlob starts a blob.
func (b *streamBuilder) beginBlob() {
	b.some = false
	if !b.selfContained {
		b.w.Reset(b.gen.epoch, b.gen.nextRef)
		return
	}
	if b.refs == nil {
		b.refs = map[*Chunk]uint32{}
	}
	clear(b.refs)
	b.w.Reset(b.gen.slot.seq+1, 0)
}

func (b *streamBuilder) add(st *Chunk, e *Sample) {
	if b.w.Len() >= b.full {
		b.finishBlob()
	}
	ref := b.seriesRef(st)
	if e.Hist != nil {
		b.w.Histogram(ref, e.T, e.Hist)
	} else {
		b.w.Float(ref, e.T, e.ST, e.V)
	}
	b.some = true
	b.items = append(b.items, stagedItem{chunk: st, entry: e})
}

func (b *streamBuilder) addExemplar(st *Chunk, e *EncodedExemplar) {
	if b.w.Len() >= b.full {
		b.finishBlob()
	}
	b.w.Exemplar(b.seriesRef(st), e.T, e.Data)
	b.some = true
	b.exemplars = append(b.exemplars, stagedExemplar{chunk: st, entry: e})
}

// seriesRef returns the number of a head chunk's series. It defines the series if it has none.
func (b *streamBuilder) seriesRef(st *Chunk) uint32 {
	if b.selfContained {
		ref := b.refs[st]
		if ref == 0 {
			ref = uint32(len(b.refs)) + 1
			b.refs[st] = ref
			b.w.Define(st.series.tenant.name, st.series.labels)
		}
		return ref
	}
	if st.ref == 0 {
		b.gen.nextRef++
		st.ref = b.gen.nextRef
		b.w.Define(st.series.tenant.name, st.series.labels)
	}
	return st.ref
}

// finishBlob completes the current blob and starts the next one.
func (b *streamBuilder) finishBlob() {
	b.blobs = append(b.blobs, slices.Clone(b.w.Finish()))
	b.gen.slot.seq++
	b.beginBlob()
}

// dependsOnEarlier reports whether a blob needs definitions from an earlier blob.
func (b *streamBuilder) dependsOnEarlier() bool {
	return !b.selfContained && (b.firstSeq != b.gen.epoch || len(b.blobs) > 1)
}

// batches appends the writes of the stream's blobs.
func (b *streamBuilder) batches(dst []engine.Batch, c *openSlot) []engine.Batch {
	if b.some {
		b.blobs = append(b.blobs, b.w.Finish())
		c.seq++
	}
	if b.selfContained && b.gen.nextRef == 0 {
		b.gen.epoch = c.seq + 1 // the name of an epoch must not be the number of a self-contained blob
	}
	for i, blob := range b.blobs {
		dst = append(dst, engine.Batch{
			Table: engine.Stage, Partition: format.StagePartition(c.slot, c.partition),
			Mutations: []engine.Mutation{{
				Clustering: engine.Key{engine.Text(b.writer), engine.Int(b.firstSeq + int64(i))},
				Timestamp:  format.StageTimestamp, Value: blob,
			}},
		})
	}
	return dst
}

func (b *streamBuilder) bytes() (n int) {
	for _, blob := range b.blobs {
		n += len(blob)
	}
	return n
}
