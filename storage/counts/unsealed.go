package counts

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cassia-db/cassia/storage/cache"
)

const (
	// reusedFrom is the minimum number of unsealed series for which counts are reused. Counting fewer series takes
	// milliseconds.
	reusedFrom = 10_000
	// reusedFor is the maximum time for which counts are reused.
	reusedFor = 30 * time.Second
	// growthSteps is the number of steps in which the number of series grows by a factor of e. One step is 2%.
	growthSteps = 50
)

// countUnsealed calls count for the unsealed series that q selects. Because counting millions of series takes seconds,
// concurrent calls share one count, and later calls reuse it for up to reusedFor, unless the number of series has
// changed by about 2%. text identifies the kind of counts.
func (s *Statistics) countUnsealed(
	ctx context.Context, q SeriesQuery, text string, count func(context.Context) (cache.EntryValue, error),
) (cache.EntryValue, error) {
	n := 0
	for _, list := range s.env.Head.MetricSeries(q.Tenant, q.Metric) {
		n += len(list)
	}
	if n < reusedFrom {
		return count(ctx)
	}
	key := cache.EntryKey{Kind: cache.KindUnsealed, Tenant: q.Tenant, Text: fmt.Sprintf("%s\x00%d", text, q.Limit)}
	size, period := uint64(math.Log(float64(n))*growthSteps), uint64(s.env.Now().UnixNano()/int64(reusedFor))
	return s.env.Cache.Get(ctx, key, size<<48|period, count)
}

// cachedCardinality is the cache entry of a Cardinality.
type cachedCardinality struct{ Cardinality }

func (c cachedCardinality) Bytes() int64 {
	return bytesOfCounts(c.SeriesOfMetrics, c.ValuesOfLabels, c.BytesOfLabels, c.SeriesOfPairs)
}
