package query

import (
	"context"
	"math"
	"sort"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/layouts"
)

type recordedStartsKey struct{}

// WithRecordedStarts returns a context for queries that return start timestamps only at times for which the tenant is
// recorded as sending deltas (package starts). Queries with other contexts return all start timestamps.
func WithRecordedStarts(ctx context.Context) context.Context {
	return context.WithValue(ctx, recordedStartsKey{}, true)
}

// startsFrom returns the time, in milliseconds, after which the samples of a query have start timestamps.
func (q *Querier) startsFrom(ctx context.Context, tenant string) int64 {
	if ctx.Value(recordedStartsKey{}) == nil {
		return math.MinInt64
	}
	return q.env.StartsFrom(tenant)
}

// hideSampleStarts removes the start timestamps of samples at or before until, in milliseconds.
func hideSampleStarts(s *chunk.Samples, until int64) {
	n := 0
	if len(s.ST) > 0 {
		n = sort.Search(len(s.T), func(i int) bool { return s.T[i] > until })
		clear(s.ST[:n])
	}
	if n == len(s.T) {
		s.ST = s.ST[:0]
	}
	for i := range s.H {
		if s.H[i].T <= until {
			s.H[i].ST = 0
		}
	}
}

// hideBucketStarts removes the start timestamps of buckets that end at or before until, in milliseconds, and the values
// derived from these start timestamps.
func hideBucketStarts(b *rollup.Buckets, until int64) {
	n := sort.Search(len(b.End), func(i int) bool { return b.End[i] > until })
	switch {
	case b.FirstST == nil:
	case n == len(b.End):
		b.FirstST, b.LastST, b.StartCorrection, b.StartResets = nil, nil, nil, nil
	default:
		clear(b.FirstST[:n])
		clear(b.LastST[:n])
		clear(b.StartCorrection[:n])
		clear(b.StartResets[:n])
	}
	for i := range n {
		b.Flags[i] &^= rollup.StartsOverlap
		if b.Histograms == nil || b.Histograms[i] == nil ||
			b.Histograms[i].StartCorrection == nil && !b.Histograms[i].FirstStartReset {
			continue
		}
		h := *b.Histograms[i]
		h.StartCorrection, h.FirstStartReset = nil, false
		h.Layouts &^= layouts.StartCorrectionsAdded
		if !h.FirstReset {
			h.Second = nil
		}
		b.Histograms[i] = &h
	}
}
