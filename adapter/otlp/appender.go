package otlp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/adapter"
)

// maxTargetInfo bounds the samples of target_info per request. The translation generates one sample per half lookback
// delta between the first and the last point of a resource, which may be decades apart.
const maxTargetInfo = 20_000

// errTargetInfo stops the translation from generating target_info for a resource.
var errTargetInfo = errors.New("otlp: too many samples of target_info")

// Properties that distinguish the translation's own target_info from a metric of the same name.
const (
	targetInfo     = "target_info"
	targetInfoHelp = "Target metadata"
)

// appender receives samples from Prometheus' translation. It counts rejected samples and returns no error for them,
// because the translation skips the rest of a metric after the first error.
type appender struct {
	in         *adapter.Intake
	rejections *rejections
	// metadata is called once for consecutive samples of the same family.
	metadata func(family string, m metadata.Metadata)
	family   string
	// stop cancels the translation once fatal is set.
	stop  context.CancelFunc
	fatal error

	// points counts the data points whose first sample was received. A histogram's point is translated to multiple
	// samples; startsPoint finds the first of them by the name of its series.
	points          int
	kept            int  // number of exemplars added
	isPointRejected bool // a sample of the current point was rejected
	hasSum          bool // the sum of the current point was added
	info            int
	// later is an error that a retry of the request may resolve, see adapter.CombineErrors.
	later error
}

// Append implements promstorage.AppenderV2.
func (a *appender) Append(
	_ promstorage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram,
	fh *histogram.FloatHistogram, opts promstorage.AOptions,
) (promstorage.SeriesRef, error) {
	if a.fatal != nil {
		return 0, a.fatal
	}
	info := opts.MetricFamilyName == targetInfo && opts.Metadata.Help == targetInfoHelp
	if info {
		if a.info++; a.info > maxTargetInfo {
			a.rejections.add(reasonTargetInfo, 0, func() string {
				return fmt.Sprintf(
					"the data points of a resource span too much time: target_info would have more than %d samples",
					maxTargetInfo,
				)
			})
			return 0, errTargetInfo
		}
	} else if a.startsPoint(ls, opts, h != nil || fh != nil) {
		a.points++
		a.isPointRejected = false
	}
	if a.metadata != nil && opts.MetricFamilyName != a.family {
		a.family = strings.Clone(opts.MetricFamilyName)
		a.metadata(a.family, opts.Metadata)
	}
	err := a.add(ls, st, t, v, h, fh)
	var rejected *adapter.RejectedError
	switch {
	case err == nil, err == adapter.ErrDropped:
		if err := a.addExemplars(ls, t, opts.Exemplars); err != nil {
			return 0, a.abortTranslation(err)
		}
	case errors.As(err, &rejected):
		a.rejectPoint(rejected, info, ls, t)
	default:
		return 0, a.abortTranslation(err)
	}
	return 0, nil
}

// abortTranslation stops the translation. The request then fails with err.
func (a *appender) abortTranslation(err error) error {
	a.fatal = err
	a.stop()
	return err
}

// addExemplars adds the exemplars of a sample at t. A rejected exemplar isn't an error: as in Prometheus, its sample is
// stored nevertheless.
func (a *appender) addExemplars(ls labels.Labels, t int64, of []exemplar.Exemplar) error {
	for _, e := range of {
		if !e.HasTs {
			e.Ts, e.HasTs = t, true
		}
		err := a.in.Exemplar(ls, e)
		var rejected *adapter.RejectedError
		switch {
		case errors.As(err, &rejected):
			if slices.Contains(adapter.RetriedReasons, rejected.Reason) {
				a.later = adapter.CombineErrors(a.later, rejected)
			}
			a.rejections.add("exemplar_"+rejected.Reason, 0, func() string {
				return fmt.Sprintf("%s: %v", ls, rejected)
			})
		case err == adapter.ErrDropped:
		case err != nil:
			return err
		default:
			a.kept++
		}
	}
	return nil
}

func (a *appender) add(
	ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram,
) error {
	if h != nil || fh != nil {
		return a.in.Histogram(ls, t, st, h, fh)
	}
	return a.in.Float(ls, t, st, v)
}

// startsPoint reports whether a sample is the first of its data point. For explicit histograms and summaries that is
// the sum, or the count if there is no sum; quantiles and buckets follow it.
func (a *appender) startsPoint(ls labels.Labels, opts promstorage.AOptions, native bool) bool {
	kind := opts.Metadata.Type
	if native || kind != "histogram" && kind != "summary" {
		a.hasSum = false
		return true
	}
	switch name := ls.Get(labels.MetricName); {
	case name == opts.MetricFamilyName+"_sum":
		a.hasSum = true
		return true
	case name == opts.MetricFamilyName+"_count":
		first := !a.hasSum
		a.hasSum = false
		return first
	}
	return false
}

// rejectPoint counts the current point as rejected, at most once. target_info belongs to no point.
func (a *appender) rejectPoint(rejected *adapter.RejectedError, info bool, ls labels.Labels, t int64) {
	a.later = adapter.CombineErrors(a.later, rejected)
	points := 0
	if !info && !a.isPointRejected {
		points, a.isPointRejected = 1, true
	}
	a.rejections.add(rejected.Reason, points, func() string {
		return fmt.Sprintf("%s at %d: %v", ls, t, rejected)
	})
}

// Commit implements promstorage.AppenderV2.
func (a *appender) Commit() error { return a.in.Commit() }

// Rollback implements promstorage.AppenderV2.
func (a *appender) Rollback() error {
	a.in.Release()
	return nil
}
