package relabeling

import (
	"errors"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
)

// droppedSeries stands for all series that rules drop.
var droppedSeries = new(storage.Series)

// batch applies rules to a batch. As adapter.Batch requires, samples are added to the last series that was looked up or
// defined.
type batch struct {
	*storage.Batch
	rules  *Rules
	cache  *droppedCache
	counts *counts
	// rule is the number of the rule that drops the current series, if it is dropped.
	rule    int
	builder *labels.Builder
}

// Lookup finds a series by its alias, made of the labels as sent.
func (b *batch) Lookup(alias []byte) (*storage.Series, bool) {
	if s, ok := b.Batch.Lookup(alias); ok {
		return s, true
	}
	if rule, ok := b.cache.get(b.MissedAlias()); ok {
		b.rule = rule
		return droppedSeries, true
	}
	return nil, false
}

// Define applies the rules and finds or creates the resulting series. The limits of labels apply to the result.
func (b *batch) Define(alias []byte, ls labels.Labels) (*storage.Series, error) {
	ls = ls.WithoutEmpty()
	if _, twice := ls.HasDuplicateLabelNames(); twice {
		return b.Batch.Define(nil, ls) // Define returns the error
	}
	if b.builder == nil {
		b.builder = labels.NewBuilder(labels.EmptyLabels())
	}
	changed, rule, err := b.rules.applyRules(ls, b.builder)
	if rejected := (*storage.LabelError)(nil); errors.As(err, &rejected) {
		b.counts.rejected[rule].Add(1)
		return nil, rejected.WithSeries(ls)
	}
	if rule == noRule {
		series, err := b.Batch.Define(alias, changed)
		if rejected := (*storage.LabelError)(nil); errors.As(err, &rejected) && !labels.Equal(ls, changed) {
			rejected.Detail += " (after relabeling)"
		}
		return series, err
	}
	if alias != nil {
		b.cache.add(b.AliasKey(alias), rule)
	}
	b.rule = rule
	return droppedSeries, nil
}

// Float adds a sample, or counts it and returns adapter.ErrDropped if the series is dropped.
func (b *batch) Float(ref *storage.Series, t, st int64, v float64) error {
	if ref == droppedSeries {
		return b.countDropped()
	}
	return b.Batch.Float(ref, t, st, v)
}

// Histogram adds a histogram, with the same errors as Float.
func (b *batch) Histogram(
	ref *storage.Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram,
) error {
	if ref == droppedSeries {
		return b.countDropped()
	}
	return b.Batch.Histogram(ref, t, st, h, fh)
}

func (b *batch) countDropped() error {
	b.counts.samples[b.rule].Add(1)
	return adapter.ErrDropped
}

// Exemplar adds an exemplar, with the same errors as Float.
func (b *batch) Exemplar(ref *storage.Series, e exemplar.Exemplar) error {
	if ref == droppedSeries {
		b.counts.exemplars[b.rule].Add(1)
		return adapter.ErrDropped
	}
	return b.Batch.Exemplar(ref, e)
}
