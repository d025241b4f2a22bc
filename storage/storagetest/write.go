package storagetest

import (
	"context"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

// Sample is one of a float series; T is in milliseconds.
type Sample struct {
	T int64
	V float64
}

// Samples returns n samples from a time on, every step milliseconds, of the values that value returns of their numbers.
func Samples(from, step int64, n int, value func(i int) float64) []Sample {
	list := make([]Sample, n)
	for i := range list {
		list[i] = Sample{from + int64(i)*step, value(i)}
	}
	return list
}

// Write sends samples of one series as a request of their own.
func Write(t testing.TB, s *storage.Store, tenant string, ls labels.Labels, samples ...Sample) {
	t.Helper()
	b := s.NewBatch(tenant)
	Add(t, b, ls, samples...)
	require.NoError(t, b.Commit(context.Background()))
}

// Add adds samples of one series to a request.
func Add(t testing.TB, b *storage.Batch, ls labels.Labels, samples ...Sample) {
	t.Helper()
	series, err := b.Define(nil, ls)
	require.NoError(t, err)
	for _, x := range samples {
		require.NoError(t, b.Float(series, x.T, 0, x.V))
	}
}
