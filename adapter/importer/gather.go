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

// Gatherer collects samples, which a source may add in any order, until they fill a batch.
type Gatherer struct {
	selection Selection
	// chosen maps the source's name of each series in this batch to the series' samples, or to nil if the series isn't
	// selected.
	chosen map[string]*chunk.Samples
	list   []storage.ImportedSeries
	// bytes is the approximate size of the collected series. enough is the size of a full batch.
	bytes, enough int
}

// seriesBytes is the approximate size of a series without its labels and samples. bucketBytes is the approximate size
// of a histogram bucket.
const (
	seriesBytes = 300
	bucketBytes = 24
)

// NewGatherer returns a Gatherer for a selection. enough is the size of a batch in bytes; 0 means BatchBytes.
func NewGatherer(s Selection, enough int) *Gatherer {
	return &Gatherer{selection: s, chosen: map[string]*chunk.Samples{}, enough: cmp.Or(enough, BatchBytes)}
}

// Known returns the samples of a series, given the source's name for the series. ok is false if the series hasn't been
// added to the current batch. into is nil if the series isn't selected.
func (g *Gatherer) Known(name []byte) (into *chunk.Samples, ok bool) {
	into, ok = g.chosen[string(name)]
	return into, ok
}

// Series adds a series, given the source's name for it. It returns the samples to pass to Float and Histogram, or nil
// if the series isn't selected.
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

// Float adds a sample if its time is selected. t and st are in milliseconds.
func (g *Gatherer) Float(into *chunk.Samples, t, st int64, v float64) {
	if t >= g.selection.MinMS && t <= g.selection.MaxMS {
		into.AppendFloat(t, st, v)
		g.bytes += SampleBytes
	}
}

// Histogram adds a native histogram if its time is selected.
func (g *Gatherer) Histogram(into *chunk.Samples, h chunk.Histogram) {
	if h.T < g.selection.MinMS || h.T > g.selection.MaxMS {
		return
	}
	into.AppendHistogram(h)
	g.bytes += seriesBytes
	if h.Int != nil {
		g.bytes += bucketBytes * (len(h.Int.PositiveBuckets) + len(h.Int.NegativeBuckets) + len(h.Int.CustomValues))
	} else {
		g.bytes += bucketBytes * (len(h.Float.PositiveBuckets) + len(h.Float.NegativeBuckets) +
			len(h.Float.CustomValues))
	}
}

// Full reports whether the collected series fill a batch.
func (g *Gatherer) Full() bool { return g.bytes >= g.enough }

// Small reports whether a number of floats takes less than half a batch.
func (g *Gatherer) Small(samples int) bool { return samples*SampleBytes < g.enough/2 }

// Tail selects the floats of one series, from index From on, that Take leaves in the Gatherer for the next batch,
// because the source may have more floats of the series.
type Tail struct {
	Of   *chunk.Samples // nil: no tail
	From int
}

// Take returns the collected series, ordered by labels. Afterwards the Gatherer holds only the floats of tail t.
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

// cutHead removes the first n floats from s and returns them.
func cutHead(s *chunk.Samples, n int) *chunk.Samples {
	head := &chunk.Samples{T: slices.Clone(s.T[:n]), V: slices.Clone(s.V[:n])}
	s.T, s.V = slices.Delete(s.T, 0, n), slices.Delete(s.V, 0, n)
	if len(s.ST) > 0 {
		head.ST = slices.Clone(s.ST[:n])
		s.ST = slices.Delete(s.ST, 0, n)
	}
	return head
}

// Shorten truncates a quotation from a source for use in a message.
func Shorten(text string) string {
	const most = 120
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
