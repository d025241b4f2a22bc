package head

import (
	"bytes"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
)

// ExemplarBytes is the size of an exemplar in memory in addition to its encoding.
const ExemplarBytes = 48

// exemplarTail holds the exemplars of a series in a generation. The lock of the series' partition guards it. The data
// that its list points to is immutable.
type exemplarTail struct {
	list       []format.Exemplar
	last       format.Exemplar // the last one added
	minT, maxT int64
	bytes      int // size in the head's account
}

// add adds a copy of an exemplar and returns by how many bytes the tail grew.
func (x *exemplarTail) add(t int64, data []byte) (grew int) {
	if x.isRepeat(t, data) {
		return 0
	}
	e := format.Exemplar{T: t, Data: slices.Clone(data)}
	if len(x.list) == 0 {
		x.minT, x.maxT = t, t
	}
	x.minT, x.maxT, x.last = min(x.minT, t), max(x.maxT, t), e
	x.list = append(x.list, e)
	before := x.bytes
	x.bytes += ExemplarBytes + len(data)
	if len(x.list) >= 2*format.MaxSlotExemplars {
		x.list = slices.Clone(format.SelectExemplars(x.list))
		x.bytes = 0
		for _, e := range x.list {
			x.bytes += ExemplarBytes + len(e.Data)
		}
	}
	return x.bytes - before
}

// isRepeat reports whether the exemplar equals the last one added.
func (x *exemplarTail) isRepeat(t int64, data []byte) bool {
	return x != nil && len(x.list) > 0 && x.last.T == t && bytes.Equal(x.last.Data, data)
}

// appendExemplar adds an exemplar to the head chunk and returns by how many bytes it grew.
func (s *Chunk) appendExemplar(t int64, data []byte) int {
	r, grew := s.ensureRare()
	if r.exemplars == nil {
		r.exemplars = &exemplarTail{}
	}
	return grew + r.exemplars.add(t, data)
}

// HasData reports whether the head chunk has samples or exemplars.
func (s *Chunk) HasData() bool { return !s.isEmpty() || s.exemplars() != nil }
