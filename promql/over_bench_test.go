package promql

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// A series' 90 days of buckets of an hour, at a step of an hour.
func BenchmarkOver(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var s chunk.Samples
	v, hour := 0.0, time.Hour.Milliseconds()
	for at := int64(0); at < 90*24*hour; at += 60_000 {
		if v += float64(r.IntN(100)); r.IntN(20_000) == 0 {
			v = 0
		}
		s.AppendFloat(at, 0, v)
	}
	var buckets rollup.Buckets
	rollup.AppendEvery(&buckets, &s, hour)
	for _, name := range []string{"", "rate", "sum_over_time", "max_over_time", "avg_over_time", "count_over_time", "resets"} {
		for _, hours := range []int64{1, 24, 720} {
			b.Run(fmt.Sprintf("%s/%dh", name, hours), func(b *testing.B) {
				f, w := newBucketFunc(name), windows{First: hour, Step: hour, Steps: 90 * 24, Span: hours * hour}
				var out answers
				b.ReportAllocs()
				for b.Loop() {
					out.Reset()
					f.evaluate(&buckets, w, &out)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(w.Steps), "ns/step")
			})
		}
	}
}

// A query of as many steps as Prometheus allows, whose edges cut every slot.
func BenchmarkChoose(b *testing.B) {
	q := request{Func: "rate", Range: hour + 15*second, From: someDay, Step: hour, Slot: 2 * hour, Horizon: keptFor(0, 0, 0)}
	q.To = q.From + 11_000*q.Step
	for b.Loop() {
		if _, _, err := choose(q); err != nil {
			b.Fatal(err)
		}
	}
}
