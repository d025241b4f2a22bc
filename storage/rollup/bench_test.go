package rollup

import (
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/cassia-db/cassia/storage/chunk"
)

const rateColumns = ColumnCount | ColumnFirst | ColumnLast | ColumnCorrection

// sized adds up the plain size of chunks, and collects them to compress many together with zstd.
type sized struct {
	plain, buckets int
	all            []byte
}

func (s *sized) zstd(b *testing.B) float64 {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for all := s.all; len(all) > 0; all = all[min(len(all), 64<<10):] {
		n += len(e.EncodeAll(all[:min(len(all), 64<<10)], nil))
	}
	return float64(n)
}

// BenchmarkBytes measures no time. It reports the bytes per bucket with 24 buckets per chunk, and the ratio of the size
// of rollup chunks to the size of raw chunks, both plain and in zstd blocks of many chunks.
func BenchmarkBytes(b *testing.B) {
	for _, sh := range usualShapes() {
		b.Run(sh.name, func(b *testing.B) {
			var raw, five, hour sized
			for seed := range uint64(200) {
				s := sh.floats(5760, seed)
				var fine, coarse Buckets
				AppendEvery(&fine, s, fiveMinutes)
				Coarsen(&coarse, &fine, oneHour)
				for from := 0; from < 5760; from += 480 {
					raw.add(chunk.AppendChunk(nil, &chunk.Samples{T: s.T[from : from+480], V: s.V[from : from+480]}),
						480)
				}
				for from := 0; from < fine.Len(); from += 24 {
					five.add(AppendChunk(nil, fine.slice(from, from+24), fiveMinutes, 1), 24)
				}
				hour.add(AppendChunk(nil, &coarse, oneHour, 12), coarse.Len())
			}
			for b.Loop() {
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(five.plain)/float64(five.buckets), "B/5m")
			b.ReportMetric(float64(hour.plain)/float64(hour.buckets), "B/1h")
			b.ReportMetric(five.zstd(b)/float64(five.buckets), "zB/5m")
			b.ReportMetric(hour.zstd(b)/float64(hour.buckets), "zB/1h")
			b.ReportMetric(raw.zstd(b)/float64(raw.buckets), "zB/sample")
			b.ReportMetric(float64(five.plain+hour.plain)/float64(raw.plain), "of-raw")
			b.ReportMetric((five.zstd(b)+hour.zstd(b))/raw.zstd(b), "z-of-raw")
		})
	}
}

func (s *sized) add(b []byte, n int) {
	s.plain += len(b)
	s.buckets += n
	s.all = append(s.all, b...)
}

func BenchmarkBuild(b *testing.B) {
	for _, sh := range usualShapes()[:2] {
		b.Run(sh.name, func(b *testing.B) {
			s := sh.floats(480, 1)
			var into Buckets
			b.ReportAllocs()
			for b.Loop() {
				into.Reset()
				AppendEvery(&into, s, fiveMinutes)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/480, "ns/sample")
		})
	}
}

func BenchmarkCoarsen(b *testing.B) {
	var fine, into Buckets
	AppendEvery(&fine, usualShapes()[0].floats(5760, 1), fiveMinutes)
	for b.Loop() {
		into.Reset()
		Coarsen(&into, &fine, oneHour)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(fine.Len()), "ns/bucket")
}

func BenchmarkEncode(b *testing.B) {
	for _, sh := range usualShapes() {
		b.Run(sh.name, func(b *testing.B) {
			var buckets Buckets
			AppendEvery(&buckets, sh.floats(480, 1), fiveMinutes)
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendChunk(buf[:0], &buckets, fiveMinutes, 1)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, want := range map[string]Columns{
		"rate": rateColumns, "rate with start timestamps": rateColumns | ColumnStarts, "max": ColumnCount | ColumnMax,
		"avg": ColumnCount | ColumnSum, "all": AllColumns,
	} {
		for _, sh := range usualShapes() {
			b.Run(name+"/"+sh.name, func(b *testing.B) {
				var buckets Buckets
				samples := sh.floats(480, 1)
				if want&ColumnStarts != 0 {
					samples = withStarts(samples, "constant", 1)
				}
				AppendEvery(&buckets, samples, fiveMinutes)
				buf := AppendChunk(nil, &buckets, fiveMinutes, 1)
				var into Buckets
				b.ReportAllocs()
				for b.Loop() {
					into.Reset()
					if err := Decode(buf, want, &into); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
