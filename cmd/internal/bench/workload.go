package bench

import (
	"errors"
	"fmt"
	"time"
)

// ErrWorkload means that the settings of a workload are invalid.
var ErrWorkload = errors.New("bench: invalid workload")

// Workload describes generated samples. Every sample can be computed from it.
type Workload struct {
	// Series is the number of series at a time. They belong to targets of up to SeriesPerTarget series.
	Series int `json:"series"`
	// Steps is the number of samples per series.
	Steps int `json:"steps"`
	// IntervalMs is the time between two samples of a series, and StartMs the time of step 0, in milliseconds. Targets
	// are scraped at different offsets within the interval.
	IntervalMs int64 `json:"interval_ms"`
	StartMs    int64 `json:"start_ms"`
	// ChurnPerHour is the share of targets that are replaced per hour: 0 none, 1 all.
	ChurnPerHour float64 `json:"churn_per_hour,omitempty"`
	// Histograms is the number of series per target that are native histograms. Odd is the number of series with values
	// that stores often damage (NaN with a payload, -0, infinities).
	Histograms int `json:"histograms,omitempty"`
	Odd        int `json:"odd,omitempty"`
	// LatePercent is the percentage of samples that are delivered LateSteps steps late, out of order.
	LatePercent int `json:"late_percent,omitempty"`
	LateSteps   int `json:"late_steps,omitempty"`
	// ExtraLabels is the number of labels per series in addition to a node exporter's.
	ExtraLabels int `json:"extra_labels,omitempty"`
	// Seed changes all values.
	Seed uint64 `json:"seed,omitempty"`
}

// Max values of a workload that one process can generate.
const (
	MaxSeries      = 20_000_000
	MaxSteps       = 100_000_000
	MaxExtraLabels = 30
)

// Validate returns an ErrWorkload if w is invalid.
func (w Workload) Validate() error {
	for _, c := range []struct {
		ok  bool
		say string
	}{
		{w.Series > 0 && w.Series <= MaxSeries, fmt.Sprintf("series must be 1 to %d", MaxSeries)},
		{w.Steps > 0 && w.Steps <= MaxSteps, fmt.Sprintf("samples per series must be 1 to %d", MaxSteps)},
		{w.IntervalMs > 0, "the interval must be at least 1ms"},
		{w.ChurnPerHour >= 0 && w.ChurnPerHour <= 60, "churn must be 0 to 60 per hour"},
		{w.Histograms >= 0 && w.Odd >= 0 && w.Histograms+w.Odd <= SeriesPerTarget,
			fmt.Sprintf("at most %d series per target can be native histograms or special values", SeriesPerTarget)},
		{w.LatePercent >= 0 && w.LatePercent <= 100, "late must be 0 to 100 percent"},
		{w.LateSteps >= 0 && (w.LatePercent == 0 || w.LateSteps > 0), "late samples need --late-steps"},
		{w.ExtraLabels >= 0 && w.ExtraLabels <= MaxExtraLabels, fmt.Sprintf("at most %d extra labels", MaxExtraLabels)},
	} {
		if !c.ok {
			return fmt.Errorf("%w: %s", ErrWorkload, c.say)
		}
	}
	return nil
}

// Samples returns the total number of samples.
func (w Workload) Samples() int64 { return int64(w.Series) * int64(w.Steps) }

// End returns the time of the last sample of any series in milliseconds.
func (w Workload) End() int64 { return w.StartMs + int64(w.Steps)*w.IntervalMs - 1 }

// Interval returns the time between two samples of a series.
func (w Workload) Interval() time.Duration { return time.Duration(w.IntervalMs) * time.Millisecond }

// targets returns the number of targets at a time.
func (w Workload) targets() int { return (w.Series + SeriesPerTarget - 1) / SeriesPerTarget }

// lifetime returns the number of steps until a target is replaced; 0: never.
func (w Workload) lifetime() int {
	if w.ChurnPerHour == 0 {
		return 0
	}
	return max(1, int(float64(time.Hour.Milliseconds())/w.ChurnPerHour/float64(w.IntervalMs)))
}

// generation returns how often the target has been replaced by step k. Targets are replaced one after the other.
func (w Workload) generation(target, k int) int {
	life := w.lifetime()
	if life == 0 {
		return 0
	}
	return (k + target*life/w.targets()) / life
}

// offset returns the offset within the interval at which a target is scraped, in milliseconds.
func (w Workload) offset(target int) int64 {
	return int64(mix(w.Seed, uint64(target)+1) % uint64(w.IntervalMs))
}

// Time returns the timestamp of sample k of series i in milliseconds.
func (w Workload) Time(i, k int) int64 {
	return w.StartMs + int64(k)*w.IntervalMs + w.offset(i/SeriesPerTarget)
}

// Step is the inverse of Time. It returns false if the series has no sample at the time.
func (w Workload) Step(i int, t int64) (int, bool) {
	t -= w.StartMs + w.offset(i/SeriesPerTarget)
	if t < 0 || t%w.IntervalMs != 0 || t/w.IntervalMs >= int64(w.Steps) {
		return 0, false
	}
	return int(t / w.IntervalMs), true
}

// late reports whether sample k of series i is delivered late.
func (w Workload) late(i, k int) bool {
	return w.LatePercent > 0 && k < w.Steps &&
		mix(w.Seed^0x6c617465, uint64(i)<<32|uint64(uint32(k)))%100 < uint64(w.LatePercent)
}

// mix is splitmix64's finalizer over two words: it is fast, and every bit of the result depends on every bit of the
// arguments.
func mix(seed, x uint64) uint64 {
	x += seed*0xd1342543de82ef95 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
