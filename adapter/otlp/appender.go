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

// maxTargetInfo bounds the samples of target_info that a request is given. The translation makes one every half of the
// lookback delta from a resource's first point to its last, which may lie decades apart.
const maxTargetInfo = 20_000

// errTargetInfo ends the translation's making of target_info for one resource.
var errTargetInfo = errors.New("otlp: too many samples of target_info")

// Properties that distinguish the translation's own target_info from a metric of that name.
const (
	targetInfo     = "target_info"
	targetInfoHelp = "Target metadata"
)

// appender takes from Prometheus' translation one sample after the other. Samples that can't be stored are
// counted and are no error, since the translation gives up a metric at the first error.
type appender struct {
	in       *adapter.Intake
	refusals *refusals
	// metadata is called for each family once in a row.
	metadata func(family string, m metadata.Metadata)
	family   string
	// stop ends the translation, once fatal is set.
	stop  context.CancelFunc
	fatal error

	// points counts data points that were begun. One point of a histogram becomes
	// several: the name of the series determines where the next point begins.
	points  int
	kept    int  // exemplars
	refused bool // a sample of the point at hand was
	sum     bool // the point at hand has begun with its sum
	info    int
	// later is a refusal that is none any more when the same is sent later, see adapter.Later.
	later error
}

// Append implements promstorage.AppenderV2.
func (a *appender) Append(_ promstorage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts promstorage.AOptions) (promstorage.SeriesRef, error) {
	if a.fatal != nil {
		return 0, a.fatal
	}
	info := opts.MetricFamilyName == targetInfo && opts.Metadata.Help == targetInfoHelp
	if info {
		if a.info++; a.info > maxTargetInfo {
			a.refusals.add(reasonTargetInfo, 0, func() string {
				return fmt.Sprintf("the data points of a resource span too much time: target_info would have more than %d samples", maxTargetInfo)
			})
			return 0, errTargetInfo
		}
	} else if a.begins(ls, opts, h != nil || fh != nil) {
		a.points++
		a.refused = false
	}
	if a.metadata != nil && opts.MetricFamilyName != a.family {
		a.family = strings.Clone(opts.MetricFamilyName)
		a.metadata(a.family, opts.Metadata)
	}
	err := a.add(ls, st, t, v, h, fh)
	var refused *adapter.Refused
	switch {
	case err == nil, err == adapter.ErrDropped:
		if err := a.exemplars(ls, t, opts.Exemplars); err != nil {
			return 0, a.end(err)
		}
	case errors.As(err, &refused):
		a.refuse(refused, info, ls, t)
	default:
		return 0, a.end(err)
	}
	return 0, nil
}

// end gives up the request.
func (a *appender) end(err error) error {
	a.fatal = err
	a.stop()
	return err
}

// exemplars takes those of a sample at t. One that can't be stored is no error, as in Prometheus: its sample is stored.
func (a *appender) exemplars(ls labels.Labels, t int64, of []exemplar.Exemplar) error {
	for _, e := range of {
		if !e.HasTs {
			e.Ts, e.HasTs = t, true
		}
		err := a.in.Exemplar(ls, e)
		var refused *adapter.Refused
		switch {
		case errors.As(err, &refused):
			if slices.Contains(adapter.RetriedReasons, refused.Reason) {
				a.later = adapter.Later(a.later, refused)
			}
			a.refusals.add("exemplar_"+refused.Reason, 0, func() string { return fmt.Sprintf("%s: %v", ls, refused) })
		case err == adapter.ErrDropped:
		case err != nil:
			return err
		default:
			a.kept++
		}
	}
	return nil
}

func (a *appender) add(ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	if h != nil || fh != nil {
		return a.in.Histogram(ls, t, st, h, fh)
	}
	return a.in.Float(ls, t, st, v)
}

// begins reports whether a sample is the first of its data point: of explicit histograms and summaries that is
// the sum, or the count where there is no sum; quantiles and buckets follow.
func (a *appender) begins(ls labels.Labels, opts promstorage.AOptions, native bool) bool {
	kind := opts.Metadata.Type
	if native || kind != "histogram" && kind != "summary" {
		a.sum = false
		return true
	}
	switch name := ls.Get(labels.MetricName); {
	case name == opts.MetricFamilyName+"_sum":
		a.sum = true
		return true
	case name == opts.MetricFamilyName+"_count":
		first := !a.sum
		a.sum = false
		return first
	}
	return false
}

// refuse counts a point whose sample isn't stored, once. A refused target_info belongs to no point.
func (a *appender) refuse(refused *adapter.Refused, info bool, ls labels.Labels, t int64) {
	a.later = adapter.Later(a.later, refused)
	points := 0
	if !info && !a.refused {
		points, a.refused = 1, true
	}
	a.refusals.add(refused.Reason, points, func() string {
		return fmt.Sprintf("%s at %d: %v", ls, t, refused)
	})
}

// Commit implements promstorage.AppenderV2.
func (a *appender) Commit() error { return a.in.Commit() }

// Rollback implements promstorage.AppenderV2.
func (a *appender) Rollback() error {
	a.in.Release()
	return nil
}
