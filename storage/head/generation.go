package head

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/format"
)

// Generation holds the samples that a stream received from the time when the generation was opened until it was closed.
type Generation struct {
	slot *openSlot
	// start is the start of the slot in milliseconds.
	start int64
	// epoch is the number of the stream's first blob, and nextRef the number of the next series. Only the committer
	// uses them.
	epoch   int64
	nextRef uint32
	// rows are the rows of the staging log that the head chunks cover. They are durable, and were read or written by
	// this process.
	rows   rowSet
	chunks []*Chunk
	// definers are rows of other processes' streams. Later blobs of these streams may depend on the definitions in the
	// rows.
	definers []definer
	// index finds head chunks while the generation belongs to no slot partition. It is nil afterwards, because head
	// chunks are then found by their series.
	index map[*Series]*Chunk
	// builder collects the blobs of the current commit. Only the committer uses it.
	builder *streamBuilder
	// bytes is the size of the head chunks in the head's account.
	bytes atomic.Int64
	// dropped is true once the head has released the generation, and touched is the time of the last write to its head
	// chunks. The partition's lock guards both.
	dropped bool
	touched time.Time
	// since is the time when this process wrote the first rows. It is zero if the generation has rows that were read
	// from the staging log.
	since time.Time
}

// NewGeneration returns a generation that belongs to no slot partition of the head yet, for samples read from the
// staging log of at, whose slot starts at start.
func NewGeneration(at SlotPartition, start int64) *Generation {
	return &Generation{
		slot: &openSlot{slot: at.Slot, partition: at.Partition}, start: start, index: map[*Series]*Chunk{},
	}
}

// FinishLoading must be called when all samples of a generation without a slot partition have been added.
func (g *Generation) FinishLoading() { g.index = nil }

// SlotPartition returns the slot partition of the generation.
func (g *Generation) SlotPartition() SlotPartition {
	return SlotPartition{g.slot.slot, g.slot.partition}
}

// Chunks returns the head chunks, which the generation owns. They don't change once it is closed.
func (g *Generation) Chunks() []*Chunk { return g.chunks }

// AddRow adds a row of the staging log that the generation covers.
func (g *Generation) AddRow(r format.StageRow) { g.rows.add(r) }

// Rows yields the rows of the staging log that the generation covers; the rows of one writer are sorted.
func (g *Generation) Rows() iter.Seq[format.StageRow] { return g.rows.all() }

// IsEmpty reports whether the generation has neither rows nor samples.
func (g *Generation) IsEmpty() bool { return g.rows.isEmpty() && !g.IsPartial() }

// IsPartial reports whether the generation has samples but covers no rows, because its streams also have unreadable
// rows. All rows of these streams stay in the staging log, and the generation need only be sealed once.
func (g *Generation) IsPartial() bool {
	return g.rows.isEmpty() && slices.ContainsFunc(g.chunks, (*Chunk).HasData)
}

// HasAny reports whether the generation covers any of the rows.
func (g *Generation) HasAny(rows map[format.StageRow]bool) bool {
	for r := range rows {
		if g.rows.has(r) {
			return true
		}
	}
	return false
}

// IsSealed reports whether none of the generation's rows is in the staging log any more.
func (g *Generation) IsSealed(staged map[format.StageRow]bool) bool {
	for r := range g.rows.all() {
		if staged[r] {
			return false
		}
	}
	return true
}

// IsCovered reports whether any of the generations covers a row of the staging log.
func IsCovered(gens []*Generation, r format.StageRow) bool {
	return slices.ContainsFunc(gens, func(g *Generation) bool { return g.rows.has(r) })
}

// IsTouched reports whether any of the deletes applies to samples of a tenant in the generation.
func (g *Generation) IsTouched(tenant string, ds format.Tombstones) bool {
	return slices.ContainsFunc(g.chunks, func(st *Chunk) bool {
		return st.HasData() && st.series.tenant.name == tenant && len(ds.OfSeries(st.series.labels)) > 0
	})
}

// EachDefinition yields the definitions in the given rows of the generation, as blobs without samples.
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

// DependsOnEarlier reports whether a blob of the current commit needs definitions from an earlier blob.
func (g *Generation) DependsOnEarlier() bool { return g.builder.dependsOnEarlier() }

// headChunkOf finds or creates the head chunk of a series.
func (g *Generation) headChunkOf(s *Series) (st *Chunk, isNew bool) {
	if g.index != nil {
		if st = g.index[s]; st == nil {
			st = newChunk(g, s)
			g.index[s] = st
			g.chunks = append(g.chunks, st)
		}
		return st, false
	}
	if st = s.chunks().chunkOf(g); st != nil {
		return st, false
	}
	st = newChunk(g, s)
	s.setChunks(s.chunks().WithChunk(st))
	g.chunks = append(g.chunks, st)
	return st, true
}
