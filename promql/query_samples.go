package promql

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/util/stats"
)

// sampleCounters replace the evaluator's counters of samples. The evaluator increments its counters before the planner
// has completed a query's statistics. So the evaluator's counters would count the values computed by fragments instead
// of the samples that fragments read.
type sampleCounters struct{ total, read prometheus.Counter }

func newSampleCounters() sampleCounters {
	return sampleCounters{
		total: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "prometheus", Subsystem: "engine",
			Name: "query_samples_total",
			Help: "The total number of samples loaded by all queries (full window per step for range-vector)."}),
		read: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "prometheus", Subsystem: "engine",
			Name: "query_samples_read_total",
			Help: "The total number of samples read by all queries (only new points per step for range-vector)."}),
	}
}

// registerer registers the evaluator's metrics in r, with these counters instead of its own. nil: no metrics are
// registered.
func (c sampleCounters) registerer(r prometheus.Registerer) prometheus.Registerer {
	if r == nil {
		return nil
	}
	return sampleRegisterer{r, c}
}

// add adds the samples of a query whose statistics are complete.
func (c sampleCounters) add(s *stats.Statistics) {
	if s != nil && s.Samples != nil {
		c.total.Add(float64(s.Samples.TotalSamples))
		c.read.Add(float64(s.Samples.SamplesRead))
	}
}

// sampleRegisterer is a registry that replaces two counters.
type sampleRegisterer struct {
	prometheus.Registerer

	own sampleCounters
}

// MustRegister implements prometheus.Registerer.
func (r sampleRegisterer) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if m, ok := c.(prometheus.Metric); ok {
			for _, own := range []prometheus.Counter{r.own.total, r.own.read} {
				if m.Desc().String() == own.Desc().String() {
					c = own
				}
			}
		}
		r.Registerer.MustRegister(c)
	}
}
