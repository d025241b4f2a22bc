package storage

import (
	"container/heap"
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// HeadStats counts what isn't sealed yet.
type HeadStats = head.Stats

// Cardinality counts the labels of a tenant's series that have samples which aren't sealed.
type Cardinality struct {
	HeadStats
	// LabelPairs is the number of different pairs of label and value.
	LabelPairs int64
	// SeriesOfMetrics counts the series of metrics, ValuesOfLabels the different values of labels, BytesOfLabels the
	// bytes of a label in all series as Prometheus does, with name, value and two more, SeriesOfPairs the series that have "label=value". Each list has the
	// greatest, the greatest first, and where they are the same, in the order of names.
	SeriesOfMetrics, ValuesOfLabels, BytesOfLabels, SeriesOfPairs []Count
}

// Count is one of a Cardinality's lists.
type Count = format.NamedCount

// pairBytes is what a pair takes besides its letters.
const pairBytes = 2

// cancelEvery is after how many series it is looked whether the caller has gone.
const cancelEvery = 1 << 13

// Cardinality counts the series of a tenant in the head; each list has at most limit entries. Beside the series it
// holds in memory the different values of one label at a time. The error is the context's.
func (s *Store) Cardinality(ctx context.Context, tenant string, limit int) (Cardinality, error) {
	all, stats, err := s.head.SeriesOf(ctx, tenant)
	out := Cardinality{HeadStats: stats}
	if err != nil {
		return out, err
	}
	names := map[string]struct{}{}
	for _, ls := range all {
		ls.Range(func(l labels.Label) { names[l.Name] = struct{}{} })
	}
	metrics, values, bytes, pairs := greatest{limit: limit}, greatest{limit: limit}, greatest{limit: limit}, greatest{limit: limit}
	for name := range names {
		counts := map[string]uint64{}
		for i, ls := range all {
			if i%cancelEvery == 0 && ctx.Err() != nil {
				return out, ctx.Err()
			}
			if v := ls.Get(name); v != "" {
				counts[v]++
			}
		}
		length := uint64(0)
		for value, n := range counts {
			if name == labels.MetricName {
				metrics.add(value, n)
			}
			if pairs.wants(n) {
				pairs.add(name+"="+value, n)
			}
			length += uint64(len(name)+len(value)+pairBytes) * n
		}
		values.add(name, uint64(len(counts)))
		bytes.add(name, length)
		out.LabelPairs += int64(len(counts))
	}
	out.SeriesOfMetrics, out.ValuesOfLabels, out.BytesOfLabels, out.SeriesOfPairs = metrics.sorted(), values.sorted(), bytes.sorted(), pairs.sorted()
	return out, nil
}

// greatest keeps the greatest counts that it is given; its heap has the least of them on top.
type greatest struct {
	limit int
	heap  countHeap
}

// wants reports whether a count may be among the greatest.
func (g *greatest) wants(n uint64) bool {
	return g.limit > 0 && (len(g.heap) < g.limit || n >= g.heap[0].Count)
}

func (g *greatest) add(name string, n uint64) {
	if !g.wants(n) {
		return
	}
	c := Count{Name: name, Count: n}
	if len(g.heap) < g.limit {
		heap.Push(&g.heap, c)
	} else if format.CompareCounts(c, g.heap[0]) < 0 {
		g.heap[0] = c
		heap.Fix(&g.heap, 0)
	}
}

func (g *greatest) sorted() []Count {
	slices.SortFunc(g.heap, format.CompareCounts)
	return g.heap
}

type countHeap []Count

func (h countHeap) Len() int           { return len(h) }
func (h countHeap) Less(i, j int) bool { return format.CompareCounts(h[i], h[j]) > 0 }
func (h countHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *countHeap) Push(x any)        { *h = append(*h, x.(Count)) }
func (h *countHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
