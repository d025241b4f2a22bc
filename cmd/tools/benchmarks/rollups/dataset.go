package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Names of the two metrics. Their labels are job, instance, and one label that the other metric doesn't have.
const (
	counterName = "http_requests_total"
	gaugeName   = "memory_used_percent"
)

// jobs is the number of values of the label job.
const jobs = 10

const dayMs = int64(24 * time.Hour / time.Millisecond)

// dataset completely determines the samples: generating them twice results in the same samples.
type dataset struct {
	// Counters and Gauges are the numbers of series of the two metrics.
	Counters, Gauges int
	// Metrics is the number of metrics among which the gauges are divided; 0 means 1. Wide is the number of additional
	// gauges on the last day, which are divided among the same number of metrics.
	Metrics, Wide int `json:",omitempty"`
	Days          int
	// IntervalMs is the interval between samples of a series in milliseconds.
	IntervalMs int64
	// EndMs is the midnight (UTC) at which the samples end, in milliseconds.
	EndMs int64
}

var errDataset = errors.New("rollups: the data described can't be made")

func (d dataset) validate() error {
	switch {
	case d.Counters < 1 || d.Gauges < 1 || d.Counters+d.Gauges > 1e6:
		return fmt.Errorf("%w: %d and %d series, each must be 1 at least", errDataset, d.Counters, d.Gauges)
	case d.Metrics < 0 || d.Metrics > d.Gauges || d.Wide < 0 || d.Wide > 1e6:
		return fmt.Errorf("%w: %d gauges of %d metrics, and %d more", errDataset, d.Gauges, d.Metrics, d.Wide)
	case d.Days < 1 || d.Days > 10_000:
		return fmt.Errorf("%w: %d days", errDataset, d.Days)
	case d.IntervalMs < 1000 || dayMs%d.IntervalMs != 0:
		return fmt.Errorf("%w: an interval of %d ms doesn't divide a day, or is under a second",
			errDataset, d.IntervalMs)
	case d.EndMs%dayMs != 0:
		return fmt.Errorf("%w: %d is no midnight", errDataset, d.EndMs)
	}
	return nil
}

func (d dataset) series() int     { return d.Counters + d.Gauges + d.Wide }
func (d dataset) startMs() int64  { return d.EndMs - int64(d.Days)*dayMs }
func (d dataset) stepsOfDay() int { return int(dayMs / d.IntervalMs) }
func (d dataset) samples() int64 {
	return int64(d.stepsOfDay()) * (int64(d.Counters+d.Gauges)*int64(d.Days) + int64(d.Wide))
}
func (d dataset) end() time.Time   { return time.UnixMilli(d.EndMs).UTC() }
func (d dataset) start() time.Time { return time.UnixMilli(d.startMs()).UTC() }

// labelsOf returns the labels of series i. Each instance of a job has ten series.
func (d dataset) labelsOf(i int) labels.Labels {
	name, own := counterName, "handler"
	if i >= d.Counters {
		name, own, i = d.gaugeOf(i-d.Counters), "device", i-d.Counters
	}
	job := fmt.Sprintf("job-%d", i%jobs)
	i /= jobs
	return labels.FromStrings(labels.MetricName, name, "job", job,
		"instance", fmt.Sprintf("%s-%d.example.net:9100", job, i/10), own, fmt.Sprintf("%s-%d", own, i%10))
}

// gaugeOf returns the name of the metric of gauge i.
func (d dataset) gaugeOf(i int) string {
	switch {
	case i >= d.Gauges:
		return fmt.Sprintf("wide_%03d", i%max(1, d.Metrics))
	case d.Metrics > 1:
		return fmt.Sprintf("m_%03d", i%d.Metrics)
	default:
		return gaugeName
	}
}

// generator generates the samples, one step of all series at a time. Each series is scraped at a fixed offset within
// the interval, as by Prometheus.
//
// A counter increases by random integers that depend on its rate and on the time of day, and restarts at 0 every few
// days. Every seventh counter counts seconds with two decimals. A gauge moves randomly between 0 and 100, with two
// decimals.
type generator struct {
	dataset
	random *rand.Rand
	now    int64 // start of the next step in milliseconds
	states []state
}

type state struct {
	// offset is the offset of the samples within the step in milliseconds. It is never 0, because a time at a boundary
	// belongs to the step that ends there.
	offset int64
	// total is the current value of a counter or gauge, in units of 1/unit.
	total int64
	unit  float64
	// mean is the average increase of a counter per step. It is 0 for a gauge.
	mean float64
	// reset is the number of steps until the counter restarts.
	reset int
}

func newGenerator(d dataset) *generator {
	g := &generator{
		dataset: d, random: rand.New(rand.NewPCG(1, uint64(d.series()))), now: d.startMs(),
		states: make([]state, d.series()),
	}
	for i := range g.states {
		s := &g.states[i]
		s.offset, s.unit = 1+g.random.Int64N(d.IntervalMs-1), 100
		if i >= d.Counters {
			s.total = g.random.Int64N(10_001)
			continue
		}
		if i%7 != 0 {
			s.unit = 1
		}
		s.mean = math.Exp(g.random.Float64()*7) * float64(d.IntervalMs) / 60_000
		s.reset = g.random.IntN(6 * d.stepsOfDay())
	}
	return g
}

// step generates the next sample of every series. It calls yield with the number of the series, the time in
// milliseconds, and the value.
func (g *generator) step(yield func(i int, t int64, v float64) error) error {
	daytime := 1 + 0.6*math.Sin(2*math.Pi*float64(g.now%dayMs)/float64(dayMs))
	there := g.states
	if g.now < g.EndMs-dayMs {
		there = there[:g.Counters+g.Gauges]
	}
	for i := range there {
		s := &there[i]
		if s.mean > 0 {
			s.count(g.random, daytime, g.stepsOfDay())
		} else {
			s.total = min(10_000, max(0, s.total+g.random.Int64N(101)-50))
		}
		if err := yield(i, g.now+s.offset, float64(s.total)/s.unit); err != nil {
			return err
		}
	}
	g.now += g.IntervalMs
	return nil
}

// count advances a counter by one step, or restarts it. The time between restarts is two to six days.
func (s *state) count(random *rand.Rand, daytime float64, stepsOfDay int) {
	if s.reset--; s.reset < 0 {
		s.total, s.reset = 0, stepsOfDay*2+random.IntN(stepsOfDay*4)
	}
	s.total += int64(s.mean * daytime * 2 * random.Float64())
}

// filled describes the contents of a filled folder.
type filled struct {
	Dataset dataset
	Costs   costs
}

func readFilled(file string) (out filled, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

func writeFilled(file string, f filled) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
