package format

import (
	"crypto/sha256"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
)

// SeriesID identifies a series forever: the first 16 bytes of the SHA-256 of its series set. Processes compute the same
// id for a series without coordination.
type SeriesID [16]byte

// String returns the raw bytes of the id, as they are stored in key fields.
func (id SeriesID) String() string { return string(id[:]) }

// SeriesIDFrom returns the id in a key field.
func SeriesIDFrom(key string) (id SeriesID) {
	copy(id[:], key)
	return id
}

// AppendSeriesSet appends the canonical text of a series: the metric's name, then its other labels in order, as
// name,k=v,k=v. The characters , = \ in names and values are escaped with \.
func AppendSeriesSet(dst []byte, ls labels.Labels) []byte {
	dst = appendEscaped(dst, ls.Get(labels.MetricName))
	ls.Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			return
		}
		dst = append(dst, ',')
		dst = appendEscaped(dst, l.Name)
		dst = append(dst, '=')
		dst = appendEscaped(dst, l.Value)
	})
	return dst
}

// AppendSeriesSetOfRow is AppendSeriesSet for the labels row of a metric's series, see AppendLabels. It returns
// ErrMalformedLabels for an invalid row.
func AppendSeriesSetOfRow(dst, row []byte, metric string) ([]byte, error) {
	if len(row) == 0 || row[0] != LabelsVersion {
		return dst, fmt.Errorf("%w: unknown version", ErrMalformedLabels)
	}
	dst = appendEscaped(dst, metric)
	for row = row[1:]; len(row) > 0; {
		for _, before := range []byte{',', '='} {
			text, rest, err := CutString(row)
			if err != nil {
				return dst, err
			}
			dst, row = appendEscaped(append(dst, before), text), rest
		}
	}
	return dst, nil
}

func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	from := 0
	for i := range len(s) {
		if c := s[i]; c == ',' || c == '=' || c == '\\' {
			dst = append(append(dst, s[from:i]...), '\\')
			from = i
		}
	}
	return append(dst, s[from:]...)
}

// SeriesIDOfSet returns the id of the series with a series set: see AppendSeriesSet.
func SeriesIDOfSet(seriesSet []byte) SeriesID {
	sum := sha256.Sum256(seriesSet)
	return SeriesID(sum[:16])
}

// SeriesIDOf returns the id of the series with these labels.
func SeriesIDOf(ls labels.Labels) SeriesID {
	return SeriesIDOfSet(AppendSeriesSet(nil, ls))
}

// FloorDiv returns a / b rounded down, for b > 0 and any a.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// PartitionOf spreads series over n partitions by jump consistent hashing: when n grows, as few series as possible
// change their partition (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014).
func PartitionOf(hash uint64, n int) int {
	var b, j int64 = -1, 0
	for j < int64(n) {
		b = j
		hash = hash*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(1<<31) / float64((hash>>33)+1)))
	}
	return int(b)
}
