package remotewrite

import (
	"fmt"
	"slices"
	"strings"
)

// Reasons to reject samples that only remote write has. Package adapter and storage.LabelError have further reasons.
const (
	reasonBadSymbols        = "bad_symbol_reference"
	reasonHistogramTooLarge = "histogram_too_large"
)

// maxRejectionText bounds the text of a response in bytes: Prometheus logs the first 1,024.
const maxRejectionText = 1000

// maxExample bounds one example in the text in bytes.
const maxExample = 240

// rejection counts elements that were rejected for one reason.
type rejection struct {
	reason                     string
	series, samples, exemplars int
	example                    string
}

// rejections are the rejected elements of one request, by reason.
type rejections []rejection

// index returns the index of a reason, adding the reason if necessary. isNew is true if it was added and needs an
// example.
func (r *rejections) index(reason string) (place int, isNew bool) {
	for i := range *r {
		if (*r)[i].reason == reason {
			return i, false
		}
	}
	*r = append(*r, rejection{reason: reason})
	return len(*r) - 1, true
}

// samples returns the number of rejected samples.
func (r rejections) samples() int {
	n := 0
	for i := range r {
		n += r[i].samples
	}
	return n
}

// exemplars returns the number of rejected exemplars.
func (r rejections) exemplars() int {
	n := 0
	for i := range r {
		n += r[i].exemplars
	}
	return n
}

// hasReason reports whether elements were rejected for a reason.
func (r rejections) hasReason(reason string) bool {
	return slices.ContainsFunc(r, func(one rejection) bool { return one.reason == reason })
}

// text describes the rejections to the sender, with the most frequent reason first.
func (r rejections) text(stored int) string {
	sorted := slices.Clone(r)
	slices.SortStableFunc(sorted, func(a, b rejection) int { return b.samples - a.samples })
	var out strings.Builder
	rejected := r.samples()
	fmt.Fprintf(&out, "%d of %d samples rejected", rejected, rejected+stored)
	separator := ": "
	for _, one := range sorted {
		line := separator + one.reason + " (" + one.countText() + ")"
		if out.Len()+len(line) > maxRejectionText {
			break
		}
		out.WriteString(line)
		if example := ", such as: " + one.example; out.Len()+len(example) <= maxRejectionText {
			out.WriteString(example)
		}
		separator = "; "
	}
	return out.String()
}

func (r *rejection) countText() string {
	switch {
	case r.samples > 0:
		return plural(r.samples, "sample")
	case r.exemplars > 0:
		return plural(r.exemplars, "exemplar")
	}
	return fmt.Sprintf("%d series without samples", r.series)
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// printableText returns text as one line of ASCII, truncated to maxExample.
func printableText(text string) string {
	if len(text) > maxExample {
		text = text[:maxExample] + "..."
	}
	var out strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			fmt.Fprintf(&out, "\\x%02x", c)
		} else {
			out.WriteByte(c)
		}
	}
	if text = out.String(); len(text) > maxExample+3 {
		return text[:maxExample] + "..."
	}
	return text
}
