package overhttp

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
)

// mergeSeries merges the occurrences of each series in a list, so that all samples of a series and day are sent in one
// body if possible. This matters for samples that are too old for raw rows: the store rolls them up body by body.
func mergeSeries(list []storage.ImportedSeries) []storage.ImportedSeries {
	at := make(map[uint64]int, len(list))
	var out []storage.ImportedSeries
	for _, s := range list {
		s.Labels = s.Labels.WithoutEmpty()
		hash := s.Labels.Hash()
		if i, ok := at[hash]; ok && labels.Equal(out[i].Labels, s.Labels) {
			out[i].Samples.AppendAll(s.Samples)
			continue
		}
		at[hash] = len(out)
		out = append(out, s)
	}
	return out
}

// packer packs series into bodies and sends each full body.
type packer struct {
	most   Terms
	stats  *storage.ImportStats
	send   func(series [][]byte) error
	series [][]byte
	// bytes and weight are the totals of series.
	bytes, weight int64
}

// add packs a series and takes ownership of its samples.
func (p *packer) add(s storage.ImportedSeries) error {
	s.Samples.Canonicalize(
		func(err error) { p.stats.AddRefusal(s.Labels, 1, &storage.InvalidHistogramError{Err: err}) },
	)
	s.Samples.Normalize()
	if s.Samples.Len() == 0 {
		return nil
	}
	return p.packSamples(s.Labels, s.Samples)
}

// packSamples packs the normalized samples of a series. It splits the samples in halves if they exceed the limits of a
// chunk or body.
func (p *packer) packSamples(ls labels.Labels, samples *chunk.Samples) error {
	if samples.Len() <= chunk.MaxSamples {
		one, weight, err := appendSeries(nil, ls, samples)
		if err != nil {
			return err
		}
		if weight <= p.most.MaxWeight && int64(len(one))+headerSize+1 <= p.most.MaxBytes || samples.Len() == 1 {
			return p.put(one, weight)
		}
	}
	a, b := splitInHalf(samples)
	if err := p.packSamples(ls, a); err != nil {
		return err
	}
	return p.packSamples(ls, b)
}

// put adds an encoded series to the current body. If the series doesn't fit, put first sends the body and starts a new
// one.
func (p *packer) put(one []byte, weight int64) error {
	if len(p.series) > 0 &&
		(p.weight+weight > p.most.MaxWeight || headerSize+1+p.bytes+int64(len(one)) > p.most.MaxBytes) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.series = append(p.series, one)
	p.weight += weight
	p.bytes += int64(len(one))
	return nil
}

// addBuckets packs a series with buckets. It splits the buckets in halves if they exceed the limits of a chunk or body.
// The labels must have no empty values.
func (p *packer) addBuckets(s storage.ImportedBuckets) error {
	n := s.Buckets.Len()
	if n <= maxBuckets {
		one, weight := appendBuckets(nil, &s)
		if weight <= p.most.MaxWeight && int64(len(one))+headerSize+1 <= p.most.MaxBytes || n <= 1 {
			return p.put(one, weight)
		}
	}
	for _, half := range [][2]int{{0, n / 2}, {n / 2, n}} {
		part := s.Buckets.Slice(half[0], half[1])
		divided := storage.ImportedBuckets{Labels: s.Labels, Resolution: s.Resolution, Buckets: &part}
		if err := p.addBuckets(divided); err != nil {
			return err
		}
	}
	return nil
}

// maxBuckets is the maximum number of buckets in a chunk.
const maxBuckets = 512

// flush sends the current body.
func (p *packer) flush() error {
	if len(p.series) == 0 {
		return nil
	}
	series := p.series
	p.series, p.bytes, p.weight = nil, 0, 0
	return p.send(series)
}

const dayMS = 24 * 3600 * 1000

// splitInHalf splits two or more samples in two, at the end of a day if they span multiple days.
func splitInHalf(s *chunk.Samples) (a, b *chunk.Samples) {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	if n := len(s.T); n > 0 {
		first, last = s.T[0], s.T[n-1]
	}
	if n := len(s.H); n > 0 {
		first, last = min(first, s.H[0].T), max(last, s.H[n-1].T)
	}
	at := first + int64(uint64(last-first)/2)
	if day := at - at%dayMS; day >= first && day < last {
		at = day
	} else if day += dayMS; day >= first && day < last {
		at = day
	}
	a, b = &chunk.Samples{}, &chunk.Samples{T: s.T, V: s.V, ST: s.ST, H: slices.Clone(s.H)}
	a.AppendAll(s)
	a.Clip(math.MinInt64, at)
	b.Clip(at+1, math.MaxInt64)
	return a, b
}
