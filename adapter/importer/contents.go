package importer

import (
	"context"
	"math"
	"time"

	"github.com/cassia-db/cassia/storage"
)

// Contents describes the samples of a source, including samples that a destination doesn't keep as raw samples.
type Contents struct {
	// Series is the number of distinct series. It is exact up to MaxCounted.
	Series int
	// Samples is the number of samples. MinMS and MaxMS are the first and last timestamp, in milliseconds.
	Samples      int64
	MinMS, MaxMS int64
	// Past counts the samples older than the retention of raw samples, by class.
	Past []PastSamples
	// Ahead is the number of samples more than storage.MaxAhead in the future.
	Ahead int64
	// Downsampled is the number of samples that the source has only as aggregates. TooCoarse counts the part that an
	// import skips, because the destination keeps finer data for their time. No other field includes these samples.
	Downsampled, TooCoarse int64
	// SkippedParts is the number of parts of the source that an import skips. DamagedParts counts the skipped parts
	// that can't be read.
	SkippedParts, DamagedParts int
}

// MaxCounted is the maximum number of distinct series that ReadContents counts.
const MaxCounted = 1 << 21

// ReadOptions configure ReadContents. Source and Now must be set.
type ReadOptions struct {
	Source Source
	// Kept is the retention of the destination.
	Kept RetentionPolicy
	Now  time.Time
	// Batch, if not nil, is called with each batch after it is counted. The callee owns the batch.
	Batch func(Batch) error
}

// ReadContents reads a source from the start without storing anything.
func ReadContents(ctx context.Context, o ReadOptions) (c Contents, err error) {
	c.MinMS, c.MaxMS = math.MaxInt64, math.MinInt64
	seen := map[uint64]struct{}{}
	for b, err := range prefetch(ctx, o.Source, "") {
		if err != nil {
			return c, err
		}
		for _, p := range o.Kept.CountPast(b.Series, o.Now) {
			c.Past = addPastSamples(c.Past, p)
		}
		for i := range b.Series {
			c.add(&b.Series[i], &o)
			if len(seen) < MaxCounted {
				seen[b.Series[i].Labels.Hash()] = struct{}{}
			}
		}
		for i := range b.Buckets {
			c.addBuckets(&b.Buckets[i], &o)
			if len(seen) < MaxCounted {
				seen[b.Buckets[i].Labels.Hash()] = struct{}{}
			}
		}
		c.Series = len(seen)
		for _, s := range b.Skipped {
			c.SkippedParts++
			if s.Damaged {
				c.DamagedParts++
			}
		}
		if o.Batch != nil {
			if err := o.Batch(b); err != nil {
				return c, err
			}
		}
	}
	return c, ctx.Err()
}

// add counts the samples of a series.
func (c *Contents) add(s *storage.ImportedSeries, o *ReadOptions) {
	eachTime(s.Samples, func(t int64) { c.MinMS, c.MaxMS = min(c.MinMS, t), max(c.MaxMS, t) })
	n := s.Samples.Len()
	c.Samples += int64(n)
	c.Ahead += int64(n - olderThan(s, o.Now.Add(storage.MaxAhead).UnixMilli()+1))
}

// addBuckets counts the samples in the buckets of a series.
func (c *Contents) addBuckets(s *storage.ImportedBuckets, o *ReadOptions) {
	keep, _ := o.Kept.KeepOf(s.Labels)
	for i, end := range s.Buckets.End {
		n := int64(s.Buckets.Count[i])
		c.Downsampled += n
		if finest, stored := keep.FinestImported(end, o.Now); stored && finest < s.Resolution {
			c.TooCoarse += n
		}
	}
}

// retentionBoundary returns the first timestamp that a retention keeps, in milliseconds. A retention of 0 keeps all.
func retentionBoundary(now time.Time, kept time.Duration) int64 {
	if kept == 0 {
		return math.MinInt64
	}
	return now.Add(-kept).UnixMilli()
}

// olderThan counts the samples before a timestamp.
func olderThan(s *storage.ImportedSeries, t int64) (n int) {
	if t == math.MinInt64 {
		return 0
	}
	eachTime(s.Samples, func(at int64) {
		if at < t {
			n++
		}
	})
	return n
}
