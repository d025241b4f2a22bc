package bucketfn_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// BenchmarkOver evaluates functions over 90 days of 1h buckets of a series, at a step of an hour.
func BenchmarkOver(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var s chunk.Samples
	v, hour := 0.0, time.Hour.Milliseconds()
	for at := int64(0); at < 90*24*hour; at += 60_000 {
		if v += float64(r.IntN(100)); r.IntN(20_000) == 0 {
			v = 0
		}
		s.AppendFloat(at, -1, v) // all with the same start
	}
	var buckets rollup.Buckets
	rollup.AppendEvery(&buckets, &s, hour)
	for _, name := range []string{"", "rate", "rate with start timestamps", "sum_over_time", "max_over_time",
		"avg_over_time", "count_over_time", "resets"} {
		for _, hours := range []int64{1, 24, 720} {
			b.Run(fmt.Sprintf("%s/%dh", name, hours), func(b *testing.B) {
				name, starts := strings.CutSuffix(name, " with start timestamps")
				f, w := bucketfn.New(name), bucketfn.Windows{First: hour, Step: hour, Steps: 90 * 24,
					Span: hours * hour}
				f.UsesStarts = starts
				var out bucketfn.Result
				b.ReportAllocs()
				for b.Loop() {
					out.Reset()
					f.Evaluate(&buckets, w, &out)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(w.Steps), "ns/step")
			})
		}
	}
}
