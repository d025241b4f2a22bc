package bench

import (
	"errors"
	"fmt"
	"time"
)

// ErrWorkload means that a workload's settings don't go together.
var ErrWorkload = errors.New("bench: invalid workload")

// Workload describes generated samples. It is all that is needed to compute every sample again.
type Workload struct {
	// Series is how many series exist at one time. They belong to targets of up to SeriesPerTarget each.
	Series int `json:"series"`
	// Steps is how many samples each of them gets.
	Steps int `json:"steps"`
	// IntervalMs is the time between two samples of a series, StartMs that of step 0, in milliseconds. Targets
	// are scraped at different offsets within the interval.
	IntervalMs int64 `json:"interval_ms"`
	StartMs    int64 `json:"start_ms"`
	// ChurnPerHour is the share of targets that are replaced by new ones in an hour: 0 none, 1 all.
	ChurnPerHour float64 `json:"churn_per_hour,omitempty"`
	// Histograms and Odd are how many series of each target are native histograms, and how many have values
	// that are easily damaged (NaN with a payload, -0, infinities).
	Histograms int `json:"histograms,omitempty"`
	Odd        int `json:"odd,omitempty"`
	// LatePercent of the samples are delivered LateSteps steps late, so out of order.
	LatePercent int `json:"late_percent,omitempty"`
	LateSteps   int `json:"late_steps,omitempty"`
	// ExtraLabels is how many labels each series has besides those of a node exporter.
	ExtraLabels int `json:"extra_labels,omitempty"`
	// Seed changes all values.
	Seed uint64 `json:"seed,omitempty"`
}

// The bounds of a workload: what one process can hold.
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

// Samples is the number of samples in all.
func (w Workload) Samples() int64 { return int64(w.Series) * int64(w.Steps) }

// End is the time of the last sample of any series, milliseconds.
func (w Workload) End() int64 { return w.StartMs + int64(w.Steps)*w.IntervalMs - 1 }

// Interval is the time between two samples of a series.
func (w Workload) Interval() time.Duration { return time.Duration(w.IntervalMs) * time.Millisecond }

// targets is how many targets there are at one time.
func (w Workload) targets() int { return (w.Series + SeriesPerTarget - 1) / SeriesPerTarget }

// lifetime is how many steps a target lives; 0: for ever.
func (w Workload) lifetime() int {
	if w.ChurnPerHour == 0 {
		return 0
	}
	return max(1, int(float64(time.Hour.Milliseconds())/w.ChurnPerHour/float64(w.IntervalMs)))
}

// generation counts how often the target has been replaced by step k. Targets are replaced one after the
// other, not all at once.
func (w Workload) generation(target, k int) int {
	life := w.lifetime()
	if life == 0 {
		return 0
	}
	return (k + target*life/w.targets()) / life
}

// offset is when within the interval a target is scraped, milliseconds.
func (w Workload) offset(target int) int64 {
	return int64(mix(w.Seed, uint64(target)+1) % uint64(w.IntervalMs))
}

// Time is the timestamp of sample k of series i, milliseconds.
func (w Workload) Time(i, k int) int64 {
	return w.StartMs + int64(k)*w.IntervalMs + w.offset(i/SeriesPerTarget)
}

// Step is the inverse of Time; false for a time at which the series has no sample.
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

// mix is splitmix64's finalizer over two words: cheap, and every bit of the result depends on every bit given.
func mix(seed, x uint64) uint64 {
	x += seed*0xd1342543de82ef95 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
