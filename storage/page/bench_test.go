package page

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// benchEntries is the number of series per page, benchPages the number of adjacent pages of different metrics.
const (
	benchEntries = 192
	benchPages   = 8
	blockBytes   = 64 << 10
)

// benchValues returns the values of benchPages metrics of the same targets, by kind. They are ordered by labels, or by
// ids, whose order differs between metrics.
func benchValues(byLabels bool) map[string][][][]byte {
	of := targets(benchEntries, 1)
	slices.SortFunc(of, func(a, b target) int { return bytes.Compare(a.labels, b.labels) })
	values := map[string][][][]byte{}
	for page := range uint64(benchPages) {
		if !byLabels {
			rand.New(rand.NewPCG(page, 2)).Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		}
		c := churnOf(of, page, page%2 == 0)
		values["labels"] = append(values["labels"], c.labels)
		values["raw"] = append(values["raw"], c.chunks)
		values["5m"] = append(values["5m"], c.r5m)
		values["1h"] = append(values["1h"], c.r1h)
	}
	return values
}

// benchOrders are the orders of entries, by name; true: by labels.
var benchOrders = map[string]bool{"by=id": false, "by=labels": true}

func kindOf(name string) Kind {
	switch name {
	case "labels":
		return Labels
	case "raw":
		return Chunks
	default:
		return Rollups
	}
}

func headOf(k Kind) Head {
	h := Head{Kind: k}
	if k != Labels {
		id := sha256.Sum256([]byte{byte(k)})
		h.Labels = string(id[:LabelsIDLen])
	}
	return h
}

// compressed returns the number of bytes into which the engine compresses adjacent rows.
func compressed(b testing.TB, rows [][]byte) (n int) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(3)))
	require.NoError(b, err)
	var block []byte
	for i, row := range rows {
		block = append(block, row...)
		if len(block) >= blockBytes || i == len(rows)-1 {
			n += len(w.EncodeAll(block, nil))
			block = block[:0]
		}
	}
	return n
}

// asRows returns values as separate rows instead of pages, with the ids in their keys.
func asRows(name string, pages [][][]byte) (rows [][]byte) {
	for p, values := range pages {
		for i, v := range values {
			id := sha256.Sum256([]byte{byte(p), byte(i)})
			row := append([]byte(nil), id[:16]...)
			if name == "raw" {
				version := sha256.Sum256(v)
				row = append(row, version[:16]...)
			}
			rows = append(rows, append(row, v...))
		}
	}
	return rows
}

// BenchmarkAppend reports, per entry, the time of Append and the number of compressed bytes: of pages, of rows with the
// values and the ids in their keys, and of the values alone.
func BenchmarkAppend(b *testing.B) {
	for order, byLabels := range benchOrders {
		for name, pages := range benchValues(byLabels) {
			b.Run(name+"/"+order, func(b *testing.B) { benchmarkAppend(b, name, pages) })
		}
	}
}

func benchmarkAppend(b *testing.B, name string, pages [][][]byte) {
	var page []byte
	var all, values [][]byte
	for _, of := range pages {
		all = append(all, Append(nil, headOf(kindOf(name)), of))
		values = append(values, of...)
	}
	b.ReportAllocs()
	for b.Loop() {
		page = Append(page[:0], headOf(kindOf(name)), pages[0])
	}
	entries := float64(benchPages * benchEntries)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries, "ns/entry")
	b.ReportMetric(float64(compressed(b, all))/entries, "B/entry")
	b.ReportMetric(float64(compressed(b, asRows(name, pages)))/entries, "rowsB/entry")
	b.ReportMetric(float64(compressed(b, values))/entries, "valuesB/entry")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAppendValue parses a page and reads all values in order.
func BenchmarkAppendValue(b *testing.B) {
	for name, pages := range benchValues(true) {
		b.Run(name, func(b *testing.B) {
			page := Append(nil, headOf(kindOf(name)), pages[0])
			var value []byte
			b.ReportAllocs()
			for b.Loop() {
				p, err := Parse(page)
				for i := 0; err == nil && i < p.Len(); i++ {
					value, err = p.AppendValue(value[:0], i)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries, "ns/entry")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkFilter builds the filter of a page of labels, and looks up a label that the page has and a label that it
// doesn't have.
func BenchmarkFilter(b *testing.B) {
	values := benchValues(true)["labels"][0]
	b.Run("append", func(b *testing.B) {
		var dst []byte
		for b.Loop() {
			dst = AppendFilter(dst[:0], values)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(values)), "ns/series")
		b.ReportMetric(float64(len(dst))/float64(len(values)), "B/series")
	})
	f := requireFilter(b, AppendFilter(nil, values))
	s := NewSelector([]LabelCondition{equals("job", "node"), equals("pod", "none")})
	b.Run("match", func(b *testing.B) {
		for b.Loop() {
			s.MayMatch(f)
		}
	})
}

// BenchmarkSelector finds the entries of a page of labels with a rare label.
func BenchmarkSelector(b *testing.B) {
	values := benchValues(true)["labels"][0]
	data := Append(nil, Head{Kind: Labels}, values)
	s := NewSelector([]LabelCondition{equals("job", "node"), equals("instance", "10.0.7.7:9100")})
	var found []byte
	for b.Loop() {
		p, err := Parse(data)
		if err != nil {
			b.Fatal(err)
		}
		found = s.AppendEntries(found[:0], p)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(values)), "ns/series")
}
