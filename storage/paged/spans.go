package paged

import (
	"cmp"
	"context"
	"math"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// ChunkSpan is the time range of a raw chunk's samples.
type ChunkSpan struct {
	ID string // of the series; valid during the call
	// First and Last are the times of the first and the last sample in milliseconds. For chunks that aren't in pages or
	// are unreadable, they are the min and max int64.
	First, Last int64
}

// Spans calls visit with the span of each raw chunk of a partition with this start, in any order, without decoding
// chunks. A chunk that is written or moved concurrently may be visited twice, but is never missed. Spans returns an
// engine.ErrCorrupt for damage, or the first error of visit.
func (r *Rows) Spans(ctx context.Context, partition engine.Key, start int64, visit func(ChunkSpan) error) error {
	segment := engine.Key{engine.Int(format.KindChunk), engine.Int(start)}
	rows := engine.Range{Table: engine.Raw, Partition: partition, From: segment, To: segment, KeysOnly: true}
	var visited error
	s := scan{r: r, ctx: ctx, rows: &rows, tables: &rawTables, spans: visit}
	s.yield = func(row engine.Row, _ error) bool {
		visited = visit(ChunkSpan{row.Clustering[rawTables.series].Text, math.MinInt64, math.MaxInt64})
		return visited == nil
	}
	err := s.all()
	return cmp.Or(visited, err)
}

// visitSpans calls spans with the entries of a page with ids from first to last.
func (s *scan) visitSpans(p *heldPage, first, last string) error {
	times := p.times()
	for at := p.search(0, first); at < p.len(); at++ {
		i := int(p.order[at])
		span := ChunkSpan{ID: p.id(i)}
		if span.ID > last {
			return nil
		}
		span.First, span.Last = times.span(i)
		if err := s.spans(span); err != nil {
			return err
		}
	}
	return nil
}

// spansOf is yieldUnit for spans: it visits the entries of the held pages, and then the rows.
func (s *scan) spansOf(g *segment, from, to engine.Key, first, last string) error {
	for i := range g.levels {
		for _, p := range g.levels[i].held {
			if err := s.visitSpans(p, first, last); err != nil {
				return err
			}
		}
	}
	return s.yieldPlain(from, to)
}
