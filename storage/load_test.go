package storage

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// FuzzBlob checks that a blob of arbitrary bytes with a valid checksum is rejected, or else that all of its samples can
// be read.
func FuzzBlob(f *testing.F) {
	var w format.BlobWriter
	w.Reset(3, 2)
	w.Define("default", labels.FromStrings(labels.MetricName, "up", "job", "a"))
	w.Float(3, 15_000, 10, math.Float64bits(1.5))
	h, err := chunk.CanonicalHistogram(chunk.Histogram{T: 15_000, Int: &histogram.Histogram{
		Count: 1, Sum: 1, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{1},
	}})
	require.NoError(f, err)
	encoded, err := encodeHistogram(h)
	require.NoError(f, err)
	w.Histogram(3, 15_000, encoded)
	w.Exemplar(3, 15_001, format.AppendExemplar(nil, 1.5, labels.FromStrings("trace_id", "a")))
	f.Add(w.Finish()[5:])
	f.Fuzz(func(t *testing.T, body []byte) {
		blob := append([]byte{1, 0, 0, 0, 0}, body...)
		binary.LittleEndian.PutUint32(blob[1:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		period := format.NewPeriods(format.Period{SlotMS: 7_200_000, RawWindowMS: 86_400_000, Partitions: 1})
		s := &Store{head: head.New(1, period), eng: memory.New(), opts: DefaultOptions(), period: period}
		s.openRows(&settings{})
		l := newLoader(s, Work{})
		if l.addBlob(t.Context(), format.StageRow{Writer: "w", Seq: 1}, blob) == nil {
			for _, st := range l.gen.Chunks() {
				var samples chunk.Samples
				require.NoError(t, st.Read(&samples))
			}
		}
	})
}
