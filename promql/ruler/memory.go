package ruler

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"
)

// Sizes of what Prometheus' rules.Group keeps, in bytes, as measured on the heap.
const (
	// seriesBytes is the size of a series in a group's map of series, without its labels and its key. The key contains
	// the labels again.
	seriesBytes = 72
	// alertBytes is the size of an alert and its entry in a rule's map of alerts, without labels and annotations.
	alertBytes = 256
	// alertSeriesLabels is the maximum size of the labels that the series of an alert have in addition to the labels
	// of the alert: the metric's name and the state.
	alertSeriesLabels = 48
	// sampleBytes is the size of a sample of a result, without its labels.
	sampleBytes = 48
)

// textBytes returns the size of a text of n bytes on the heap.
func textBytes(n int) int64 { return int64(n + n/16 + 8) }

// seriesMemory returns the size of a series with labels of n bytes in a group's map of series.
func seriesMemory(n int) int64 { return seriesBytes + 2*textBytes(n) }

// sampleMemory returns the size of a sample of a result.
func sampleMemory(s *promengine.Sample) int64 {
	n := sampleBytes + textBytes(int(s.Metric.ByteSize()))
	if s.H != nil {
		n += int64(s.H.Size())
	}
	return n
}

// vectorMemory returns the size of a result.
func vectorMemory(result promengine.Vector) (n int64) {
	for i := range result {
		n += sampleMemory(&result[i])
	}
	return n
}

// resultBytes is the size of an entry in a queryCache, without its query and its result.
const resultBytes = 96

// templateMemory returns the size of the result of a query in a template. A template copies the labels of each sample
// to a map.
func templateMemory(result promengine.Vector) int64 {
	n := vectorMemory(result)
	for i := range result {
		n += 80 + 40*int64(max(8, 2*result[i].Metric.Len()))
	}
	return n
}

// recordingMemory returns the memory of a recording rule whose expression has returned a result.
func recordingMemory(rule rules.Rule, result promengine.Vector) (r reservation) {
	own := len(labels.MetricName) + len(rule.Name()) + int(rule.Labels().ByteSize())
	r.transient = vectorMemory(result)
	for i := range result {
		ls := result[i].Metric
		n := own + int(ls.ByteSize())
		if name := ls.Get(labels.MetricName); name != "" {
			n -= len(labels.MetricName) + len(name) // The rule replaces the name.
		}
		r.kept += seriesMemory(n)
	}
	return r
}

// alertTexts are the sizes of all alerts of a result, in bytes.
type alertTexts struct{ alerts, labels, annotations int }

func (t alertTexts) total() int { return t.labels + t.annotations }

// memory returns the size of alerts on the heap.
func (t alertTexts) memory() int64 {
	return int64(t.alerts)*alertBytes + int64(t.total())*17/16
}

// alertingMemory returns the memory of an alerting rule whose expression has returned a result. texts are the sizes of
// the alerts of the result, and c is the rule's charge, or nil.
func alertingMemory(rule *rules.AlertingRule, result promengine.Vector, texts alertTexts,
	c *charge) (r reservation) {
	n := int64(len(result))
	// The series ALERTS and ALERTS_FOR_STATE.
	perAlert := 2 * seriesMemory(alertSeriesLabels)
	r.kept = texts.memory() + n*perAlert + 4*int64(texts.labels)*17/16
	// Samples of both series, in a slice that grows, and the set of the alerts' hashes.
	r.transient = vectorMemory(result) + n*(2*2*sampleBytes+40)
	if rule.KeepFiringFor() > 0 && c != nil {
		r.kept += c.series // Alerts that keep firing aren't part of the result.
	}
	return r
}

// resolvedRetention is the time for which Prometheus keeps a resolved alert.
const resolvedRetention = 15 * time.Minute

// measureAlerts returns the size of the alerts that a rule keeps. It releases the texts of resolved alerts that the
// rule's next evaluation after the time at deletes. Otherwise these texts could keep that evaluation from fitting.
func measureAlerts(rule *rules.AlertingRule, at time.Time) int64 {
	var texts alertTexts
	rule.ForEachActiveAlert(func(a *rules.Alert) {
		if a.State == rules.StateInactive && !a.ResolvedAt.IsZero() && at.Sub(a.ResolvedAt) > resolvedRetention {
			a.Labels, a.Annotations = labels.EmptyLabels(), labels.EmptyLabels()
		}
		texts.alerts++
		texts.labels += int(a.Labels.ByteSize())
		texts.annotations += int(a.Annotations.ByteSize())
	})
	return texts.memory()
}

// chargingAppendable is the Appendable of groups with an account. It charges the series that a group keeps, and stores
// them with another Appendable.
type chargingAppendable struct{ promstorage.Appendable }

// Appender implements promstorage.Appendable. A group calls it once per rule after the rule's query, and once more
// after all rules for the stale markers of removed rules.
func (a chargingAppendable) Appender(ctx context.Context) promstorage.Appender {
	app := a.Appendable.Appender(ctx)
	e, account := evaluationOf(ctx), accountOf(ctx)
	if e == nil || account == nil {
		return app
	}
	charging := &chargingAppender{Appender: app, account: account}
	if !e.appended && e.rule != nil && e.rule.Health() == rules.HealthGood {
		e.appended, charging.charge = true, account.chargeOf(e.rule)
	}
	return charging
}

type chargingAppender struct {
	promstorage.Appender
	account *charges
	charge  *charge // of the rule; nil: the samples are stale markers of removed rules
	bytes   int64
}

// Append implements promstorage.Appender.
func (a *chargingAppender) Append(ref promstorage.SeriesRef, ls labels.Labels, t int64,
	v float64) (promstorage.SeriesRef, error) {
	ref, err := a.Appender.Append(ref, ls, t, v)
	if err == nil && !value.IsStaleNaN(v) {
		a.bytes += seriesMemory(int(ls.ByteSize()))
	}
	return ref, err
}

// AppendHistogram implements promstorage.Appender.
func (a *chargingAppender) AppendHistogram(ref promstorage.SeriesRef, ls labels.Labels, t int64, h *histogram.Histogram,
	fh *histogram.FloatHistogram) (promstorage.SeriesRef, error) {
	ref, err := a.Appender.AppendHistogram(ref, ls, t, h, fh)
	if err == nil {
		a.bytes += seriesMemory(int(ls.ByteSize()))
	}
	return ref, err
}

// Commit implements promstorage.Appender. After an error, the group keeps the series of the previous evaluation.
func (a *chargingAppender) Commit() error {
	if err := a.Appender.Commit(); err != nil {
		return err
	}
	if a.charge == nil {
		a.account.clearStale()
		return nil
	}
	a.account.setHeld(&a.charge.series, a.bytes)
	return nil
}
