package importer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/labelorder"
)

// Gatherer collects the samples of a source that gives them in any order, until there are enough for a batch.
type Gatherer struct {
	selection Selection
	// chosen are the series that this batch has met; nil: one that isn't wanted.
	chosen map[string]*chunk.Samples
	list   []storage.ImportedSeries
	// bytes is about what they take, and enough how much is enough.
	bytes, enough int
}

// seriesBytes is about what a series takes besides its labels and samples, and bucketBytes what a bucket of a histogram does.
const (
	seriesBytes = 300
	bucketBytes = 24
)

// NewGatherer returns one for a selection. enough is the size of a batch, bytes; 0: BatchBytes.
func NewGatherer(s Selection, enough int) *Gatherer {
	return &Gatherer{selection: s, chosen: map[string]*chunk.Samples{}, enough: cmp.Or(enough, BatchBytes)}
}

// Known returns where the samples of a series go that the source names with these bytes, if it has met them since the last
// batch; nil: it isn't wanted.
func (g *Gatherer) Known(name []byte) (into *chunk.Samples, ok bool) {
	into, ok = g.chosen[string(name)]
	return into, ok
}

// Series returns where the samples of a series go, which the source names with these bytes; nil: it isn't wanted.
func (g *Gatherer) Series(name []byte, ls labels.Labels) *chunk.Samples {
	g.bytes += seriesBytes + len(name)
	if !g.selection.Wants(ls) {
		g.chosen[string(name)] = nil
		return nil
	}
	into := &chunk.Samples{}
	ls = g.selection.Labels(ls)
	g.bytes += int(ls.ByteSize())
	g.chosen[string(name)] = into
	g.list = append(g.list, storage.ImportedSeries{Labels: ls, Samples: into})
	return into
}

// Float adds a sample, unless its time isn't wanted; times are milliseconds.
func (g *Gatherer) Float(into *chunk.Samples, t, st int64, v float64) {
	if t >= g.selection.MinMS && t <= g.selection.MaxMS {
		into.AppendFloat(t, st, v)
		g.bytes += SampleBytes
	}
}

// Histogram adds a native histogram, unless its time isn't wanted.
func (g *Gatherer) Histogram(into *chunk.Samples, h chunk.Histogram) {
	if h.T < g.selection.MinMS || h.T > g.selection.MaxMS {
		return
	}
	into.AppendHistogram(h)
	g.bytes += seriesBytes
	if h.Int != nil {
		g.bytes += bucketBytes * (len(h.Int.PositiveBuckets) + len(h.Int.NegativeBuckets) + len(h.Int.CustomValues))
	} else {
		g.bytes += bucketBytes * (len(h.Float.PositiveBuckets) + len(h.Float.NegativeBuckets) + len(h.Float.CustomValues))
	}
}

// Full reports whether there is enough for a batch.
func (g *Gatherer) Full() bool { return g.bytes >= g.enough }

// Small reports whether samples take less than half a batch.
func (g *Gatherer) Small(samples int) bool { return samples*SampleBytes < g.enough/2 }

// Tail is the end of a series' floats, from one on, that stays for the next batch because there is more of it to come.
type Tail struct {
	Of   *chunk.Samples // nil: there is none
	From int
}

// Take returns the collected series, in the order of labels, and begins anew with a tail.
func (g *Gatherer) Take(t Tail) []storage.ImportedSeries {
	var left, list []storage.ImportedSeries
	for _, s := range g.list {
		if s.Samples == t.Of {
			left = append(left, s)
			s.Samples = cutHead(s.Samples, t.From)
		}
		if s.Samples.Len() > 0 {
			list = append(list, s)
		}
	}
	labelorder.Sort(list, func(s storage.ImportedSeries) labels.Labels { return s.Labels })
	g.list, g.bytes = left, 0
	for name, into := range g.chosen {
		if into == nil || into != t.Of {
			delete(g.chosen, name)
		} else {
			g.bytes += seriesBytes + len(name) + SampleBytes*into.Len()
		}
	}
	return list
}

// cutHead takes the first floats out of samples.
func cutHead(s *chunk.Samples, n int) *chunk.Samples {
	head := &chunk.Samples{T: slices.Clone(s.T[:n]), V: slices.Clone(s.V[:n])}
	s.T, s.V = slices.Delete(s.T, 0, n), slices.Delete(s.V, 0, n)
	if len(s.ST) > 0 {
		head.ST = slices.Clone(s.ST[:n])
		s.ST = slices.Delete(s.ST, 0, n)
	}
	return head
}

// Shorten cuts what a message quotes of a source.
func Shorten(text string) string {
	const most = 120
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
