package counts

import (
	"container/heap"
	"context"
	"slices"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// Cardinality contains counts of a tenant's unsealed series and their labels.
type Cardinality struct {
	head.Stats
	// LabelPairs is the number of different pairs of label and value.
	LabelPairs int64
	// SeriesOfMetrics counts the series of each metric, ValuesOfLabels the different values of each label, and
	// SeriesOfPairs the series with each "label=value". BytesOfLabels is the size of each label in all series, computed
	// as in Prometheus: the sizes of name and value plus two bytes. Each list has the largest counts in descending
	// order; equal counts are ordered by name.
	SeriesOfMetrics, ValuesOfLabels, BytesOfLabels, SeriesOfPairs []Count
}

// Count is an entry in a list of counts.
type Count = format.NamedCount

// pairBytes is the size of a pair in addition to its name and value.
const pairBytes = 2

// cancelEvery is the number of series between checks for cancellation.
const cancelEvery = 1 << 12

// Cardinality counts the series of a tenant in the head. Each list has at most limit entries. Counts of many series may
// come from an earlier call: see countUnsealed. The only error that Cardinality returns is the context's.
func (s *Statistics) Cardinality(ctx context.Context, tenant string, limit int) (Cardinality, error) {
	q := SeriesQuery{Tenant: tenant, Limit: limit}
	v, err := s.countUnsealed(ctx, q, "cardinality", func(ctx context.Context) (cache.EntryValue, error) {
		c, err := s.cardinality(ctx, q)
		return cachedCardinality{c}, err
	})
	if err != nil {
		return Cardinality{}, err
	}
	return v.(cachedCardinality).Cardinality, nil
}

func (s *Statistics) cardinality(ctx context.Context, q SeriesQuery) (Cardinality, error) {
	limit := q.Limit
	c := headCount{bytes: map[string]uint64{}, stats: &head.Stats{MinT: format.MaxTime, MaxT: -format.MaxTime}}
	if err := c.count(ctx, s, q); err != nil {
		return Cardinality{}, err
	}
	out := Cardinality{Stats: *c.stats}
	if out.Series = c.series; out.MinT > out.MaxT {
		out.MinT, out.MaxT = 0, 0
	}
	values, bytes, pairs := largestCounts{limit: limit}, largestCounts{limit: limit}, largestCounts{limit: limit}
	for name, found := range c.labels.found {
		for _, v := range found.greatest.heap {
			if pairs.isCandidate(v.Count) {
				pairs.add(name+"="+v.Name, v.Count)
			}
		}
		values.add(name, found.values)
		bytes.add(name, c.bytes[name])
		out.LabelPairs += int64(found.values)
	}
	out.SeriesOfMetrics, out.ValuesOfLabels = c.metrics.sorted(), values.sorted()
	out.BytesOfLabels, out.SeriesOfPairs = bytes.sorted(), pairs.sorted()
	return out, nil
}

// maxCountBytes is the maximum size of the label values that are counted together, in bytes.
const maxCountBytes = 32 << 20

// headCount counts unsealed series and their labels in bounded memory. If there are too many values, it makes several
// passes over the series. Series that are created or sealed between two passes are counted for some labels only.
type headCount struct {
	series     int64
	allMetrics int
	metrics    largestCounts
	labels     *valueCounter
	// bytes maps labels to their sizes in all series, as in Cardinality. stats counts chunks. Each is nil if it isn't
	// counted.
	bytes map[string]uint64
	stats *head.Stats
}

// count counts the series that q selects. The only error that it returns is the context's.
func (c *headCount) count(ctx context.Context, s *Statistics, q SeriesQuery) error {
	c.metrics.limit = q.Limit
	c.labels = newValueCounter(int(min(s.env.QueryBytes, maxCountBytes)), q.Limit)
	for first, more := true, true; more; first, more = false, c.labels.endPass() {
		for metric, list := range s.env.Head.MetricSeries(q.Tenant, q.Metric) {
			for i, series := range list {
				if i%cancelEvery == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if first && c.stats != nil {
					s.env.Head.AddChunks(series, c.stats)
				}
				c.add(series.Labels(), first)
			}
			if first {
				c.series += int64(len(list))
				c.allMetrics++
				c.metrics.add(metric, uint64(len(list)))
			}
		}
	}
	return ctx.Err()
}

func (c *headCount) add(ls labels.Labels, first bool) {
	ls.Range(func(l labels.Label) {
		c.labels.value(bytesOf(l.Name), bytesOf(l.Value))
		if _, known := c.bytes[l.Name]; first && c.bytes != nil && (known || len(c.bytes) < maxCountedLabels) {
			c.bytes[l.Name] += uint64(len(l.Name) + len(l.Value) + pairBytes)
		}
	})
}

// bytesOf returns the bytes of a text without copying them. They must not be modified.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// largestCounts keeps the largest of the counts that are added, up to a limit. The smallest kept count is at the top of
// the heap.
type largestCounts struct {
	limit int
	heap  countHeap
}

// isCandidate reports whether a count may be one of the largest.
func (g *largestCounts) isCandidate(n uint64) bool {
	return g.limit > 0 && (len(g.heap) < g.limit || n >= g.heap[0].Count)
}

func (g *largestCounts) add(name string, n uint64) {
	if !g.isCandidate(n) {
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

func (g *largestCounts) sorted() []Count {
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
