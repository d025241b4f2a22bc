package storage

import (
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
)

// maxSeriesText bounds the size of all labels of a series, in bytes, because they are stored in one record of a blob.
const maxSeriesText = 64 << 10

// These constants are the values of LabelError.Reason.
const (
	ReasonDuplicateLabel    = "duplicate_label"
	ReasonEmptyLabelName    = "empty_label_name"
	ReasonMissingMetricName = "missing_metric_name"
	ReasonInvalidUTF8       = "invalid_utf8"
	ReasonTooManyLabels     = "too_many_labels"
	reasonLabelNameTooLong  = "label_name_too_long"
	ReasonLabelValueTooLong = "label_value_too_long"
	ReasonSeriesTooLong     = "series_too_long"
)

// CheckLabels returns a *LabelError if ls, which must be sorted, can't name a series of the tenant.
func (s *Store) CheckLabels(tenant string, ls labels.Labels) error {
	most := s.opts.labelBounds(tenant)
	return checkLabels(truncateValues(ls, most, nil), most)
}

// checkLabels returns a *LabelError if ls, which must be sorted, can't name a series.
func checkLabels(ls labels.Labels, most labelBounds) error {
	var err *LabelError
	bad := func(reason, format string, args ...any) {
		if err == nil {
			err = &LabelError{Reason: reason, Detail: fmt.Sprintf(format, args...)}
		}
	}
	n, bytes, last, named := 0, 0, "", false
	ls.Range(func(l labels.Label) {
		switch {
		case l.Name == "":
			bad(ReasonEmptyLabelName, "the label with the value %.64q has no name", l.Value)
		case n > 0 && l.Name == last:
			bad(ReasonDuplicateLabel, "duplicate label %.64q", l.Name)
		case !utf8.ValidString(l.Name):
			bad(ReasonInvalidUTF8, "label name %.64q isn't valid UTF-8", l.Name)
		case !utf8.ValidString(l.Value):
			bad(ReasonInvalidUTF8, "the value of label %.64q isn't valid UTF-8", l.Name)
		case len(l.Name) > most.name:
			bad(
				reasonLabelNameTooLong,
				"label name %.64q has %d bytes; the maximum is %d (label_name_bytes in --limits.file)", l.Name,
				len(l.Name), most.name,
			)
		case len(l.Value) > most.value:
			bad(
				ReasonLabelValueTooLong,
				"the value of label %.64q has %d bytes; the maximum is %d (label_value_bytes in --limits.file)", l.Name,
				len(l.Value), most.value,
			)
		}
		named = named || l.Name == labels.MetricName && l.Value != ""
		n, bytes, last = n+1, bytes+len(l.Name)+len(l.Value), l.Name
	})
	if n > most.labels {
		bad(ReasonTooManyLabels, "it has %d labels; the maximum is %d (labels in --limits.file)", n, most.labels)
	}
	if bytes > maxSeriesText {
		bad(ReasonSeriesTooLong, "its labels have %d bytes; the maximum is %d", bytes, maxSeriesText)
	}
	if !named {
		bad(ReasonMissingMetricName, "it has no %s", labels.MetricName)
	}
	if err == nil {
		return nil
	}
	err.Series = shorten(ls)
	return err
}

// WithSeries returns a copy of the error for another series.
func (e *LabelError) WithSeries(ls labels.Labels) *LabelError {
	return &LabelError{Reason: e.Reason, Detail: e.Detail, Series: shorten(ls)}
}

// shorten returns a series as a string of valid UTF-8, truncated to limit bytes.
func shorten(ls labels.Labels) string {
	const limit = 256
	text := fmt.Sprintf("%+q", ls.String())
	if len(text) > limit {
		return text[:limit] + "…"
	}
	return text
}

// InvalidExemplarError describes an exemplar that can't be stored.
type InvalidExemplarError struct {
	// Reason is the value of the reason label of counters: labels_too_long, invalid_utf8 or duplicate_label.
	Reason string
}

func (e *InvalidExemplarError) Error() string { return "invalid exemplar: " + e.Reason }

// checkExemplar returns an error if an exemplar with these labels can't be stored.
func checkExemplar(ls labels.Labels) error {
	runes, n, valid := 0, 0, true
	ls.Range(func(l labels.Label) {
		n++
		runes += utf8.RuneCountInString(l.Name) + utf8.RuneCountInString(l.Value)
		valid = valid && utf8.ValidString(l.Name) && utf8.ValidString(l.Value)
	})
	switch _, twice := ls.HasDuplicateLabelNames(); {
	case runes > exemplar.ExemplarMaxLabelSetLength || n > exemplar.ExemplarMaxLabelSetLength:
		return &InvalidExemplarError{"labels_too_long"}
	case !valid:
		return &InvalidExemplarError{"invalid_utf8"}
	case twice:
		return &InvalidExemplarError{"duplicate_label"}
	}
	return nil
}
