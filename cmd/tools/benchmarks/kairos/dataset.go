package main

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/cmd/internal/bench"
)

// metric is the name of all series. The names of the exporter's metrics are in the label fieldName, because a KairosDB
// query selects one metric, and the measured query reads all series.
const (
	metric    = "node_everything"
	fieldName = "field"
	zoneName  = "zone"
	zones     = 20
)

// bucket is the width of the buckets in the measured query.
const bucket = 5 * time.Minute

// dataset contains the series and samples that both systems receive.
type dataset struct {
	*bench.Generator
	// tags contains the labels of each series except the metric's name, sorted by name.
	tags [][]labels.Label
	// whole reports, for each series, whether all values are integers, because KairosDB stores integers separately.
	whole []bool
}

func newDataset(w bench.Workload) (*dataset, error) {
	g, err := bench.NewGenerator(w)
	if err != nil {
		return nil, err
	}
	d := &dataset{Generator: g}
	for i := range w.Series {
		b := labels.NewBuilder(g.Labels(i, 0))
		b.Set(fieldName, b.Get(labels.MetricName))
		b.Set(zoneName, "zone-"+strconv.Itoa(i%zones))
		b.Del(labels.MetricName)
		var tags []labels.Label
		b.Labels().Range(func(l labels.Label) { tags = append(tags, l) })
		d.tags = append(d.tags, tags)
		whole := true
		for k := 0; k < w.Steps && whole; k++ {
			v := g.Value(i, k)
			whole = v == math.Trunc(v)
		}
		d.whole = append(d.whole, whole)
	}
	return d, nil
}

func (d *dataset) samples() int64 { return d.Samples() }

// span returns the time range of the query, (from, to] in milliseconds. It consists of whole buckets.
func (d *dataset) span() (from, to int64) {
	width := bucket.Milliseconds()
	return d.StartMs, d.StartMs + int64(d.Steps)*d.IntervalMs/width*width
}

// part is the contents of one request: consecutive samples of some series.
type part struct {
	series []int
	// first is the first step (inclusive), and last is the last step (exclusive).
	first, last int
}

// parts returns the requests of one sender in time order. most is the max number of samples of a request. Each request
// contains as many of the sender's series as possible.
func (d *dataset) parts(sender, senders, most int) []part {
	var own []int
	for i := sender; i < d.Series; i += senders {
		own = append(own, i)
	}
	if len(own) == 0 {
		return nil
	}
	var out []part
	steps := max(1, most/len(own))
	for k := 0; k < d.Steps; k += steps {
		for from := 0; from < len(own); from += most {
			out = append(out, part{own[from:min(from+most, len(own))], k, min(k+steps, d.Steps)})
		}
	}
	return out
}
