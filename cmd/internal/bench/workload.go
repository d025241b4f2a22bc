package bench

import (
	"errors"
	"fmt"
	"time"
)

// errWorkload means that the settings of a workload are invalid.
var errWorkload = errors.New("bench: invalid workload")

// Workload describes generated samples. Each sample can be computed from it.
type Workload struct {
	// Series is the number of series at any time. They belong to targets of up to seriesPerTarget series.
	Series int `json:"series"`
	// Steps is the number of samples per series.
	Steps int `json:"steps"`
	// IntervalMs is the time between samples of a series, and StartMs is the time of step 0, in milliseconds. Targets
	// are scraped at different offsets within the interval.
	IntervalMs int64 `json:"interval_ms"`
	StartMs    int64 `json:"start_ms"`
	// ChurnPerHour is the share of targets that are replaced per hour, from 0 for none to 1 for all.
	ChurnPerHour float64 `json:"churn_per_hour,omitempty"`
	// Histograms is the number of native histogram series per target. Odd is the number of series per target with
	// values that stores often corrupt (NaN with a payload, -0, infinities).
	Histograms int `json:"histograms,omitempty"`
	Odd        int `json:"odd,omitempty"`
	// LatePercent is the percentage of samples that are delivered LateSteps steps late, out of order.
	LatePercent int `json:"late_percent,omitempty"`
	LateSteps   int `json:"late_steps,omitempty"`
	// ExtraLabels is the number of labels per series in addition to those of a node exporter.
	ExtraLabels int `json:"extra_labels,omitempty"`
	// Seed is the seed of the random values.
	Seed uint64 `json:"seed,omitempty"`
}

// Max values of a workload.
const (
	maxSeries      = 20_000_000
	maxSteps       = 100_000_000
	maxExtraLabels = 30
)

// Validate returns an error that wraps errWorkload if w is invalid.
func (w Workload) Validate() error {
	for _, c := range []struct {
		ok  bool
		say string
	}{
		{w.Series > 0 && w.Series <= maxSeries, fmt.Sprintf("series must be 1 to %d", maxSeries)},
		{w.Steps > 0 && w.Steps <= maxSteps, fmt.Sprintf("samples per series must be 1 to %d", maxSteps)},
		{w.IntervalMs > 0, "the interval must be at least 1ms"},
		{w.ChurnPerHour >= 0 && w.ChurnPerHour <= 60, "churn must be 0 to 60 per hour"},
		{w.Histograms >= 0 && w.Odd >= 0 && w.Histograms+w.Odd <= seriesPerTarget,
			fmt.Sprintf("at most %d series per target can be native histograms or special values", seriesPerTarget)},
		{w.LatePercent >= 0 && w.LatePercent <= 100, "late must be 0 to 100 percent"},
		{w.LateSteps >= 0 && (w.LatePercent == 0 || w.LateSteps > 0), "late samples need --late-steps"},
		{w.ExtraLabels >= 0 && w.ExtraLabels <= maxExtraLabels, fmt.Sprintf("at most %d extra labels", maxExtraLabels)},
	} {
		if !c.ok {
			return fmt.Errorf("%w: %s", errWorkload, c.say)
		}
	}
	return nil
}

// Samples returns the total number of samples.
func (w Workload) Samples() int64 { return int64(w.Series) * int64(w.Steps) }

// End returns the time after which there are no samples, in milliseconds.
func (w Workload) End() int64 { return w.StartMs + int64(w.Steps)*w.IntervalMs - 1 }

// Interval returns the time between two samples of a series.
func (w Workload) Interval() time.Duration { return time.Duration(w.IntervalMs) * time.Millisecond }

// targets returns the number of targets at a time.
func (w Workload) targets() int { return (w.Series + seriesPerTarget - 1) / seriesPerTarget }

// lifetime returns the number of steps after which a target is replaced; 0: never.
func (w Workload) lifetime() int {
	if w.ChurnPerHour == 0 {
		return 0
	}
	return max(1, int(float64(time.Hour.Milliseconds())/w.ChurnPerHour/float64(w.IntervalMs)))
}

// generation returns the number of times that the target has been replaced before step k. Targets are replaced one
// after another.
func (w Workload) generation(target, k int) int {
	life := w.lifetime()
	if life == 0 {
		return 0
	}
	return (k + target*life/w.targets()) / life
}

// offset returns the offset of a target's scrapes within the interval, in milliseconds.
func (w Workload) offset(target int) int64 {
	return int64(mixHash(w.Seed, uint64(target)+1) % uint64(w.IntervalMs))
}

// Time returns the timestamp of sample k of series i in milliseconds.
func (w Workload) Time(i, k int) int64 {
	return w.StartMs + int64(k)*w.IntervalMs + w.offset(i/seriesPerTarget)
}

// Step is the inverse of Time: it returns the step of series i at time t. It returns false if the series has no sample
// at t.
func (w Workload) Step(i int, t int64) (int, bool) {
	t -= w.StartMs + w.offset(i/seriesPerTarget)
	if t < 0 || t%w.IntervalMs != 0 || t/w.IntervalMs >= int64(w.Steps) {
		return 0, false
	}
	return int(t / w.IntervalMs), true
}

// isLate reports whether sample k of series i is delivered late.
func (w Workload) isLate(i, k int) bool {
	return w.LatePercent > 0 && k < w.Steps &&
		mixHash(w.Seed^0x6c617465, uint64(i)<<32|uint64(uint32(k)))%100 < uint64(w.LatePercent)
}

// mixHash is a fast hash: splitmix64's finalizer over two words. Every bit of the result depends on every bit of the
// arguments.
func mixHash(seed, x uint64) uint64 {
	x += seed*0xd1342543de82ef95 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
