package promql

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage/chunk"
)

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// someDay is midnight, UTC. It is the end of a slot and of buckets.
var someDay = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// samplePointsOf reads samples as a query does, with the hints that the iterator derives.
func samplePointsOf(s *chunk.Samples) bucketfntest.Points {
	var p bucketfntest.Points
	it := iteratorFor(nil, math.MinInt64, func(into *chunk.Samples) error {
		into.AppendAll(s)
		return nil
	})
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		if typ == chunkenc.ValFloat {
			if t, v := it.At(); !value.IsStaleNaN(v) {
				p.Floats = append(p.Floats, promengine.FPoint{T: t, F: v})
				p.Starts.Floats = append(p.Starts.Floats, it.AtST())
			}
			continue
		}
		if t, h := it.AtFloatHistogram(nil); !value.IsStaleNaN(h.Sum) {
			p.Histograms = append(p.Histograms, promengine.HPoint{T: t, H: h})
			p.Starts.Histograms = append(p.Starts.Histograms, it.AtST())
		}
	}
	return p
}
