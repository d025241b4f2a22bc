package storagetest

import (
	"context"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

// FloatSample is a float sample. T is in milliseconds.
type FloatSample struct {
	T int64
	V float64
}

// Samples returns n samples: the first at time from, and each further sample step milliseconds after the previous one.
// value returns the value of the i-th sample.
func Samples(from, step int64, n int, value func(i int) float64) []FloatSample {
	list := make([]FloatSample, n)
	for i := range list {
		list[i] = FloatSample{from + int64(i)*step, value(i)}
	}
	return list
}

// Write writes samples of one series in a separate request.
func Write(t testing.TB, s *storage.Store, tenant string, ls labels.Labels, samples ...FloatSample) {
	t.Helper()
	b := s.NewBatch(tenant)
	Add(t, b, ls, samples...)
	require.NoError(t, b.Commit(context.Background()))
}

// Add adds samples of one series to a request.
func Add(t testing.TB, b *storage.Batch, ls labels.Labels, samples ...FloatSample) {
	t.Helper()
	series, err := b.Define(nil, ls)
	require.NoError(t, err)
	for _, x := range samples {
		require.NoError(t, b.Float(series, x.T, 0, x.V))
	}
}
