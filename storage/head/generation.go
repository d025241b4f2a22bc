package head

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/format"
)

// Generation is what a stream brought from when it was opened until it was closed.
type Generation struct {
	slot *openSlot
	// start is that of the slot, milliseconds.
	start int64
	// epoch is the seq of its first blob; nextRef numbers its series. Only the committer uses them.
	epoch   int64
	nextRef uint32
	// rows are the stage rows that its head chunks cover: durable, and read back or written by this process.
	rows   rowSet
	chunks []*Chunk
	// definers are those of rows that other writers' later blobs may lean on; only where there are any.
	definers []definer
	// index finds head chunks while the generation belongs to no slot partition; nil: they are found by their series.
	index map[*Series]*Chunk
	// builder collects the blobs of the commit under way; only the committer uses it.
	builder *streamBuilder
	// bytes is what its head chunks weigh.
	bytes atomic.Int64
	// dropped is true once the head has released it, and touched is when its head chunks last got anything; the partition's lock guards
	// them.
	dropped bool
	touched time.Time
	// since is when this process wrote its first rows; zero: it has rows that were read.
	since time.Time
}

// NewGeneration makes one that belongs to no slot partition, for samples read from the stage of one whose slot starts then.
func NewGeneration(at SlotPartition, start int64) *Generation {
	return &Generation{slot: &openSlot{slot: at.Slot, partition: at.Partition}, start: start, index: map[*Series]*Chunk{}}
}

// Loaded ends the reading of a generation that belongs to no slot partition.
func (g *Generation) Loaded() { g.index = nil }

// At returns the slot partition of the generation.
func (g *Generation) At() SlotPartition { return SlotPartition{g.slot.slot, g.slot.partition} }

// Chunks returns the head chunks, which are the generation's. They don't change once it is closed.
func (g *Generation) Chunks() []*Chunk { return g.chunks }

// Cover notes that the generation covers a stage row.
func (g *Generation) Cover(r format.StageRow) { g.rows.add(r) }

// Rows yields the stage rows that the generation covers, those of a writer in order.
func (g *Generation) Rows() iter.Seq[format.StageRow] { return g.rows.all() }

// IsEmpty reports whether the generation has neither rows nor samples.
func (g *Generation) IsEmpty() bool { return g.rows.isEmpty() && !g.Partial() }

// Partial reports whether the generation holds samples of rows of which others can't be read, and no others.
// These rows stay, so that sealing it is worth the effort only once.
func (g *Generation) Partial() bool {
	return g.rows.isEmpty() && slices.ContainsFunc(g.chunks, (*Chunk).Holds)
}

// HasAny reports whether any of the generation's rows is among these.
func (g *Generation) HasAny(rows map[format.StageRow]bool) bool {
	for r := range rows {
		if g.rows.has(r) {
			return true
		}
	}
	return false
}

// IsSealed reports whether none of the generation's rows is staged any more.
func (g *Generation) IsSealed(staged map[format.StageRow]bool) bool {
	for r := range g.rows.all() {
		if staged[r] {
			return false
		}
	}
	return true
}

// IsCovered reports whether any of the generations covers a stage row.
func IsCovered(gens []*Generation, r format.StageRow) bool {
	return slices.ContainsFunc(gens, func(g *Generation) bool { return g.rows.has(r) })
}

// IsTouched reports whether any of some deletes is about samples of a tenant in the generation.
func (g *Generation) IsTouched(tenant string, ds format.Tombstones) bool {
	return slices.ContainsFunc(g.chunks, func(st *Chunk) bool {
		return st.Holds() && st.series.tenant.name == tenant && len(ds.OfSeries(st.series.labels)) > 0
	})
}

// EachDefinition yields what some of the generation's rows defined, as blobs without samples.
func (g *Generation) EachDefinition(of map[format.StageRow]bool) iter.Seq2[format.StageRow, []byte] {
	return func(yield func(format.StageRow, []byte) bool) {
		var blob format.BlobWriter
		for _, d := range g.definers {
			if !of[d.row] {
				continue
			}
			blob.Reset(d.epoch, d.before)
			for _, series := range d.series {
				blob.Define(series.tenant.name, series.labels)
			}
			if !yield(d.row, slices.Clone(blob.Finish())) {
				return
			}
		}
	}
}

// LastSeq returns the number of the stream's last blob.
func (g *Generation) LastSeq() int64 { return g.slot.seq }

// DependsOnEarlier reports whether a blob of the commit under way needs what an earlier one defined.
func (g *Generation) DependsOnEarlier() bool { return g.builder.dependsOnEarlier() }

// headChunkOf finds or makes the head chunk of a series.
func (g *Generation) headChunkOf(s *Series) (st *Chunk, isNew bool) {
	if g.index != nil {
		if st = g.index[s]; st == nil {
			st = newChunk(g, s)
			g.index[s] = st
			g.chunks = append(g.chunks, st)
		}
		return st, false
	}
	if st = s.chunks().of(g); st != nil {
		return st, false
	}
	st = newChunk(g, s)
	s.setChunks(s.chunks().With(st))
	g.chunks = append(g.chunks, st)
	return st, true
}
