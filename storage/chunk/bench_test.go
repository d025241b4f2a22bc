package chunk

import (
	"testing"
)

const benchSamples = 480 // 2 h at 15 s

func reportPerSample(b *testing.B, samples, bytes int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(samples), "ns/sample")
	b.ReportMetric(float64(bytes)/float64(samples), "B/sample")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkEncode(b *testing.B) {
	for _, shape := range shapes() {
		b.Run(shape.name, func(b *testing.B) {
			s := shape.samples(benchSamples, 1)
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendChunk(buf[:0], s)
			}
			reportPerSample(b, s.Len(), len(buf))
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, shape := range shapes() {
		b.Run(shape.name, func(b *testing.B) {
			s := shape.samples(benchSamples, 1)
			buf := AppendChunk(nil, s)
			var into Samples
			b.ReportAllocs()
			for b.Loop() {
				into.Reset()
				if err := Decode(buf, &into); err != nil {
					b.Fatal(err)
				}
			}
			reportPerSample(b, s.Len(), len(buf))
		})
	}
}

func BenchmarkNormalize(b *testing.B) {
	s := shapes()[3].samples(benchSamples, 1)
	b.Run("sorted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Normalize()
		}
		reportPerSample(b, s.Len(), 16*s.Len())
	})
	b.Run("two runs", func(b *testing.B) {
		var two Samples
		b.ReportAllocs()
		for b.Loop() {
			two.Reset()
			two.T = append(append(two.T, s.T[240:]...), s.T...)
			two.V = append(append(two.V, s.V[240:]...), s.V...)
			two.Normalize()
		}
		reportPerSample(b, s.Len(), 16*s.Len())
	})
}

func BenchmarkHistograms(b *testing.B) {
	for _, float := range []bool{false, true} {
		name := "integer"
		if float {
			name = "float"
		}
		s := growingHistograms(b, benchSamples, float)
		buf := AppendChunk(nil, s)
		b.Run("encode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendChunk(buf[:0], s)
			}
			reportPerSample(b, s.Len(), len(buf))
		})
		b.Run("decode/"+name, func(b *testing.B) {
			var into Samples
			b.ReportAllocs()
			for b.Loop() {
				into.Reset()
				if err := Decode(buf, &into); err != nil {
					b.Fatal(err)
				}
			}
			reportPerSample(b, s.Len(), len(buf))
		})
	}
}
