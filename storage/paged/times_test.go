package paged

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// requireBounded requires that bounded reads return the wanted chunks, except some without samples in the time range.
func (h *history) requireBounded(w Wanted) {
	read := func(w Wanted) []testRow {
		got, err := readAll(
			func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return h.rows.Chunks(ctx, w) },
			engine.Range{},
		)
		require.NoError(h.t, err)
		return got
	}
	w.KeysOnly = false
	all := read(w)
	w.Bounded, w.MinT = true, w.First+h.rng.Int64N(2*slotMS)-slotMS/2
	w.MaxT = w.MinT + h.rng.Int64N(slotMS)
	got := read(w)
	next := 0
	for _, row := range all {
		if next < len(got) && engine.Compare(got[next].key, row.key) == 0 {
			require.Equal(h.t, row, got[next])
			next++
			continue
		}
		raw, err := format.ParseRawChunk([]byte(row.value))
		require.NoError(h.t, err)
		info, err := chunk.Header(raw.Data)
		require.NoError(h.t, err)
		require.True(h.t, info.MaxT < w.MinT || info.MinT > w.MaxT,
			"a chunk from %d to %d isn't there, asked from %d to %d", info.MinT, info.MaxT, w.MinT, w.MaxT)
	}
	require.Equal(h.t, len(got), next)
}

// requireSpans requires that exactly the chunks of a start have spans, and that their samples are within them.
func (h *history) requireSpans(w Wanted) {
	spans := map[string][]ChunkSpan{}
	require.NoError(h.t, h.rows.Spans(h.t.Context(), w.Partition, w.First, func(s ChunkSpan) error {
		s.ID = strings.Clone(s.ID)
		spans[s.ID] = append(spans[s.ID], s)
		return nil
	}))
	start := engine.Key{engine.Int(format.KindChunk), engine.Int(w.First)}
	all, err := readAll(h.rows.Scan, engine.Range{Table: engine.Raw, Partition: w.Partition, From: start, To: start})
	require.NoError(h.t, err)
	chunks := map[string]bool{}
	for _, row := range all {
		id := row.key[rawTables.series].Text
		chunks[id] = true
		raw, err := format.ParseRawChunk([]byte(row.value))
		require.NoError(h.t, err)
		if raw.Data == nil {
			continue
		}
		info, err := chunk.Header(raw.Data)
		require.NoError(h.t, err)
		require.True(h.t, slices.ContainsFunc(spans[id], func(s ChunkSpan) bool {
			return s.First <= info.MinT && info.MaxT <= s.Last
		}))
	}
	require.Equal(h.t, slices.Sorted(maps.Keys(chunks)), slices.Sorted(maps.Keys(spans)))
}
