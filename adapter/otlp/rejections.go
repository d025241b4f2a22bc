package otlp

import (
	"fmt"
	"slices"
	"strings"
)

// Reasons to reject data points. Package adapter and storage.LabelError have further reasons.
const (
	reasonDeltaWithoutStart = "delta_without_start"
	reasonDeltaInvalidStart = "delta_invalid_start"
	reasonNoTemporality     = "no_temporality"
	reasonNoTimestamp       = "no_timestamp"
	reasonBadScale          = "scale_too_coarse"
	reasonTooManyAttributes = "too_many_attributes"
	reasonTooMuchText       = "too_many_buckets_and_attributes"
	reasonTargetInfo        = "target_info_too_long"
	reasonUntranslatable    = "untranslatable"
)

// maxRejectionText bounds the text of a response, and maxExample one example in it, in bytes.
const (
	maxRejectionText = 1000
	maxExample       = 300
)

// rejection counts the data points that were rejected for one reason.
type rejection struct {
	reason  string
	points  int
	example string
}

// rejections are the rejections of one request, by reason.
type rejections []rejection

// add counts points that were rejected for a reason, and keeps the first example per reason. points is 0 if an element
// other than a point was rejected.
func (r *rejections) add(reason string, points int, example func() string) {
	for i := range *r {
		if (*r)[i].reason == reason {
			(*r)[i].points += points
			return
		}
	}
	text := strings.ToValidUTF8(example(), "\uFFFD")
	if len(text) > maxExample {
		text = strings.ToValidUTF8(text[:maxExample], "") + "…"
	}
	*r = append(*r, rejection{reason, points, text})
}

// points returns the number of rejected data points.
func (r rejections) points() int {
	n := 0
	for i := range r {
		n += r[i].points
	}
	return n
}

// text describes to the sender how many points were rejected and why, with the most frequent reason first.
func (r rejections) text(points int) string {
	sorted := slices.Clone(r)
	slices.SortStableFunc(sorted, func(a, b rejection) int { return b.points - a.points })
	var out strings.Builder
	if points == 0 {
		out.WriteString("metrics without data points were ignored")
	} else {
		fmt.Fprintf(&out, "%d of %d data points rejected", r.points(), points)
	}
	separator := ": "
	for _, one := range sorted {
		line := fmt.Sprintf("%s%s (%d), such as: %s", separator, one.reason, one.points, one.example)
		switch {
		case points == 0:
			line = separator + one.example
		case one.points == 0: // no points were rejected
			line = separator + one.reason + ": " + one.example
		}
		if out.Len()+len(line) > maxRejectionText {
			break
		}
		out.WriteString(line)
		separator = "; "
	}
	return out.String()
}
