package relabeling

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/inspect"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// ErrNoRules means that no rules apply to the tenant.
var ErrNoRules = errors.New("relabeling: no rules for the tenant")

// Bounds of a trial.
const (
	// maxExamples bounds the examples per rule.
	maxExamples = 3
	// maxResults bounds the series that are kept in memory to detect series with equal resulting labels.
	maxResults = 1 << 20
	// samplesOfChunk is the typical number of samples per chunk of the store, which determines the compression.
	samplesOfChunk = 480
)

// TrialOptions select the series of a trial.
type TrialOptions struct {
	Tenant string
	// MinT and MaxT bound the samples, both inclusive, in milliseconds.
	MinT, MaxT int64
	// MaxSeries bounds the examined series; 0 means no bound. The examination of a series never starts after Until; the
	// zero time means no limit.
	MaxSeries int64
	Until     time.Time
	// Warn is called for unreadable data that is skipped. If Warn is nil, such data isn't reported.
	Warn func(error)
}

// Amount counts series, their samples in the examined range, and the estimated stored size in bytes of these samples
// per day.
type Amount struct {
	Series   int64   `json:"series"`
	Samples  int64   `json:"samples"`
	DayBytes float64 `json:"day_bytes"`
}

func (a *Amount) add(samples int, bytes float64) {
	a.Series++
	a.Samples += int64(samples)
	a.DayBytes += bytes
}

// RuleTrial is the effect that a rule would have.
type RuleTrial struct {
	Number int    `json:"number"`
	Text   string `json:"text"`
	// Dropped counts the series that the rule drops, and Changed the series whose labels it changes.
	Dropped  Amount    `json:"dropped"`
	Changed  Amount    `json:"changed"`
	Examples []Example `json:"examples"`
}

// Example is a series that a rule drops (After is "") or changes.
type Example struct {
	Before string `json:"before"`
	After  string `json:"after"`
}

// Trial is the effect that rules would have had on the stored series, had they been in effect at ingestion.
type Trial struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// All counts all examined series. Dropped and Refused count the series that would not be stored.
	All     Amount `json:"all"`
	Dropped Amount `json:"dropped"`
	// Refused counts series whose resulting labels are invalid: their senders would get an error such as Refusal.
	Refused Amount `json:"refused"`
	Refusal string `json:"refusal"`
	// Changed counts series that would be stored with other labels. Merged counts the changed series whose new labels
	// equal the labels of another series: if both have a sample at the same time, one of the two samples would be lost.
	Changed Amount `json:"changed"`
	Merged  int64  `json:"merged"`
	// Rules are the effects by rule, in order.
	Rules []RuleTrial `json:"rules"`
	// Metrics is the number of examined metrics, out of AllMetrics. Cut is true if a limit of the trial was reached.
	Metrics    int  `json:"metrics"`
	AllMetrics int  `json:"all_metrics"`
	Cut        bool `json:"cut"`
	// Measured is true if sizes are shares of the measured size of the tenant's sealed data, rollups included.
	// Otherwise sizes are estimates for the samples before the engine compresses them.
	Measured bool `json:"measured"`
}

// trial is the state of a running trial.
type trial struct {
	TrialOptions
	Trial
	store   *storage.Store
	rules   *Rules
	builder *labels.Builder
	samples chunk.Samples
	piece   chunk.Samples
	encoded []byte
	results map[uint64]struct{}
}

// RunTrial computes the effect that a table's rules for a tenant would have on stored series. It reads all samples in
// the range, one series at a time, and changes nothing. An engine.WorkMeter in ctx counts the examined metrics.
func RunTrial(ctx context.Context, s *storage.Store, table *Table, o TrialOptions) (*Trial, error) {
	rules := table.RulesOf(o.Tenant)
	if rules == nil {
		return nil, ErrNoRules
	}
	t := &trial{
		TrialOptions: o, store: s, rules: rules, builder: labels.NewBuilder(labels.EmptyLabels()),
		results: map[uint64]struct{}{},
	}
	t.Start, t.End = time.UnixMilli(o.MinT).UTC(), time.UnixMilli(o.MaxT).UTC()
	for i, text := range rules.texts {
		t.Rules = append(t.Rules, RuleTrial{Number: i + 1, Text: text, Examples: []Example{}})
	}
	metrics, err := s.LabelValues(ctx, labels.MetricName, t.query(nil))
	if err != nil {
		return nil, err
	}
	t.AllMetrics = len(metrics)
	meter := engine.MeterOf(ctx)
	meter.AddExpected(int64(len(metrics)))
	for _, name := range metrics {
		if err := t.examineMetric(ctx, name); err != nil {
			return nil, err
		}
		if t.Cut {
			break
		}
		t.Metrics++
		meter.Add(1)
	}
	return &t.Trial, t.scaleSizes(ctx)
}

func (t *trial) query(ms []*labels.Matcher) query.Query {
	return query.Query{Tenant: t.Tenant, MinT: t.MinT, MaxT: t.MaxT, Matchers: ms, Warn: t.Warn}
}

// examineMetric examines the series of a metric.
func (t *trial) examineMetric(ctx context.Context, name string) error {
	found, err := t.store.Select(ctx, t.query([]*labels.Matcher{
		{Type: labels.MatchEqual, Name: labels.MetricName, Value: name},
	}))
	if err != nil {
		return err
	}
	for _, s := range found {
		if t.MaxSeries > 0 && t.All.Series >= t.MaxSeries || !t.Until.IsZero() && time.Now().After(t.Until) {
			t.Cut = true
			return nil
		}
		t.samples.Reset()
		if err := s.Samples(&t.samples); err != nil {
			return err
		}
		if n := t.samples.Len(); n > 0 {
			t.series(s.Labels, n, t.size())
		}
	}
	return nil
}

// size returns the estimated size of the current samples in chunks, in bytes.
func (t *trial) size() (bytes float64) {
	add := func() {
		t.encoded = chunk.AppendChunk(t.encoded[:0], &t.piece)
		bytes += float64(len(t.encoded))
	}
	s := &t.samples
	for from := 0; from < len(s.T); from += samplesOfChunk {
		to := min(from+samplesOfChunk, len(s.T))
		t.piece = chunk.Samples{T: s.T[from:to], V: s.V[from:to]}
		if len(s.ST) > 0 {
			t.piece.ST = s.ST[from:to]
		}
		add()
	}
	for h := range slices.Chunk(s.H, samplesOfChunk) {
		t.piece = chunk.Samples{H: h}
		add()
	}
	return bytes
}

// series applies the rules to a series.
func (t *trial) series(ls labels.Labels, samples int, bytes float64) {
	t.All.add(samples, bytes)
	now := ls
	for i, c := range t.rules.configs {
		t.builder.Reset(now)
		rule := &t.Rules[i]
		a := newRuleInput(t.builder)
		keep, err := a.applyRule(i+1, c)
		if err != nil {
			t.rejectSamples(samples, bytes, err)
			return
		}
		next := t.builder.Labels()
		if !keep || next.IsEmpty() {
			t.Dropped.add(samples, bytes)
			rule.Dropped.add(samples, bytes)
			rule.addExample(ls.String(), "")
			return
		}
		if !labels.Equal(now, next) {
			rule.Changed.add(samples, bytes)
			rule.addExample(now.String(), next.String())
		}
		now = next
	}
	if err := t.store.CheckLabels(t.Tenant, now); err != nil {
		t.rejectSamples(samples, bytes, err)
		return
	}
	if !labels.Equal(ls, now) {
		t.Changed.add(samples, bytes)
	}
	hash := now.Hash()
	if _, known := t.results[hash]; known {
		t.Merged++
	} else if len(t.results) < maxResults {
		t.results[hash] = struct{}{}
	}
}

func (t *trial) rejectSamples(samples int, bytes float64, err error) {
	t.Refused.add(samples, bytes)
	if t.Refusal == "" {
		t.Refusal = err.Error()
	}
}

func (r *RuleTrial) addExample(before, after string) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, Example{
			strings.ToValidUTF8(before, "\ufffd"), strings.ToValidUTF8(after, "\ufffd"),
		})
	}
}

// scaleSizes converts the sizes of chunks to sizes per day.
func (t *trial) scaleSizes(ctx context.Context) error {
	days := float64(t.MaxT-t.MinT+1) / float64(24*time.Hour/time.Millisecond)
	scale := 1 / days
	if !t.Cut && t.All.DayBytes > 0 {
		space, err := MeasureSpace(ctx, t.store, t.Tenant)
		if err != nil {
			return err
		}
		total := 0.0
		for _, of := range space {
			total += of.DayBytes
		}
		if total > 0 {
			scale, t.Measured = total/t.All.DayBytes, true
		}
	}
	amounts := []*Amount{&t.All, &t.Dropped, &t.Refused, &t.Changed}
	for i := range t.Rules {
		amounts = append(amounts, &t.Rules[i].Dropped, &t.Rules[i].Changed)
	}
	for _, a := range amounts {
		a.DayBytes *= scale
	}
	return nil
}

// ResolutionSpace is the space used by a resolution of a tenant's sealed data.
type ResolutionSpace struct {
	// DayBytes is the size of a day, averaged over the windows with known sizes; 0 if there are none.
	DayBytes float64
	// Windows are the sealed windows.
	Windows []inspect.SurveyedWindow
}

// MeasureSpace returns the sizes of a tenant's sealed data by resolution: raw, 5m and 1h.
func MeasureSpace(
	ctx context.Context, s *storage.Store, tenant string,
) (space [rollup.OneHour + 1]ResolutionSpace, err error) {
	list, _, err := inspect.ListWindows(ctx, s.View(), tenant)
	if err != nil {
		return space, err
	}
	var days [len(space)]float64
	for _, w := range list {
		of := &space[w.Resolution]
		of.Windows = append(of.Windows, w)
		if w.Bytes < 0 || w.Slots == 0 || w.Of == 0 {
			continue
		}
		days[w.Resolution] += w.End.Sub(w.Start).Hours() / 24 * min(1, float64(w.Slots)/float64(w.Of))
		of.DayBytes += float64(w.Bytes)
	}
	for i := range space {
		if days[i] > 0 {
			space[i].DayBytes /= days[i]
		}
	}
	return space, nil
}
