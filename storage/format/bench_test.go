package format

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// benchSeries returns series with labels like a node exporter's.
func benchSeries(n int) []labels.Labels {
	all := make([]labels.Labels, n)
	for i := range all {
		all[i] = labels.FromStrings(labels.MetricName, "node_cpu_seconds_total",
			"instance", fmt.Sprintf("host-%d:9100", i), "job", "node", "cpu", "17", "mode", "idle")
	}
	return all
}

// benchBlob writes a blob that defines series and has ten samples of each.
func benchBlob(w *BlobWriter, series []labels.Labels) []byte {
	w.Reset(1, 0)
	for _, ls := range series {
		w.Define("default", ls)
	}
	for round := range 10 {
		for i := range series {
			w.Float(uint32(i+1), int64(1777636800000+15_000*round), 0, math.Float64bits(float64(i*round)))
		}
	}
	return w.Finish()
}

func BenchmarkBlobWriter(b *testing.B) {
	series := benchSeries(500)
	var w BlobWriter
	for b.Loop() {
		benchBlob(&w, series)
	}
}

// countingSink counts samples.
type countingSink struct{ samples int }

func (s *countingSink) Define(uint32, string, labels.Labels) error { return nil }
func (s *countingSink) Float(uint32, int64, int64, uint64) error   { s.samples++; return nil }
func (s *countingSink) Histogram(uint32, int64, []byte) error      { s.samples++; return nil }
func (s *countingSink) Exemplar(uint32, int64, []byte) error       { return nil }

func BenchmarkBlobReader(b *testing.B) {
	var w BlobWriter
	blob := benchBlob(&w, benchSeries(500))
	var r BlobReader
	for b.Loop() {
		var sink countingSink
		require.NoError(b, r.Open(blob))
		require.NoError(b, r.Walk(&sink))
		require.Equal(b, 5000, sink.samples)
	}
}

func BenchmarkLabels(b *testing.B) {
	ls := benchSeries(1)[0]
	var buf []byte
	var builder labels.ScratchBuilder
	for b.Loop() {
		buf = AppendLabels(buf[:0], ls)
		if _, err := ParseLabels(buf, "node_cpu_seconds_total", &builder); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeriesID(b *testing.B) {
	ls := benchSeries(1)[0]
	for b.Loop() {
		SeriesIDOf(ls)
	}
}

func BenchmarkPeriods(b *testing.B) {
	p := NewPeriods(first)
	for t := int64(1777636800000); b.Loop(); t += 15_000 {
		slot := p.SlotOf(t)
		if p.SlotEnd(slot) < t || p.WindowEnd(p.RawWindowOfSlot(slot)) < t {
			b.Fatal(t)
		}
	}
}
