package importer

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
)

// Gatherer collects the samples of a source that gives them in any order, until there are enough for a batch.
type Gatherer struct {
	selection Selection
	// chosen are the series that this batch has met; nil: one that isn't wanted.
	chosen map[string]*chunk.Samples
	list   []storage.ImportedSeries
	bytes  int
}

// seriesBytes is about what a series takes besides its labels and samples, and bucketBytes what a bucket of a histogram does.
const (
	seriesBytes = 300
	bucketBytes = 24
)

// NewGatherer returns one for what is wanted.
func NewGatherer(s Selection) *Gatherer {
	return &Gatherer{selection: s, chosen: map[string]*chunk.Samples{}}
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

// Full says that there is enough for a batch.
func (g *Gatherer) Full() bool { return g.bytes >= BatchBytes }

// Take returns what was collected, in the order of labels, and begins anew, but for one series that stays; nil: none does.
func (g *Gatherer) Take(staying *chunk.Samples) []storage.ImportedSeries {
	list, left := g.list, []storage.ImportedSeries(nil)
	list = slices.DeleteFunc(list, func(s storage.ImportedSeries) bool {
		if s.Samples == staying {
			left = append(left, s)
		}
		return s.Samples == staying || s.Samples.Len() == 0
	})
	slices.SortStableFunc(list, func(a, b storage.ImportedSeries) int { return labels.Compare(a.Labels, b.Labels) })
	g.list, g.bytes = left, 0
	for name, into := range g.chosen {
		if into == nil || into != staying {
			delete(g.chosen, name)
		} else {
			g.bytes += seriesBytes + len(name) + SampleBytes*into.Len()
		}
	}
	return list
}

// Shorten cuts what a message quotes of a source.
func Shorten(text string) string {
	const most = 120
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
