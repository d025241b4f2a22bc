package remotewrite

import (
	"fmt"
	"slices"
	"strings"
)

// Reasons to refuse samples that only this protocol has, beside those of storage.LabelError and of package adapter.
const (
	reasonBadSymbols        = "bad_symbol_reference"
	reasonHistogramTooLarge = "histogram_too_large"
)

// maxRejectionText bounds the text of an answer, bytes: Prometheus logs the first 1,024.
const maxRejectionText = 1000

// maxExample bounds one example in it, bytes.
const maxExample = 240

// rejection counts elements that were refused for one reason.
type rejection struct {
	reason                     string
	series, samples, exemplars int
	example                    string
}

// rejections are the refused elements of one request, by reason.
type rejections []rejection

// at returns the place of a reason, and whether it is new and lacks an example.
func (r *rejections) at(reason string) (place int, isNew bool) {
	for i := range *r {
		if (*r)[i].reason == reason {
			return i, false
		}
	}
	*r = append(*r, rejection{reason: reason})
	return len(*r) - 1, true
}

// samples returns how many samples were refused.
func (r rejections) samples() int {
	n := 0
	for i := range r {
		n += r[i].samples
	}
	return n
}

// exemplars returns how many exemplars were refused.
func (r rejections) exemplars() int {
	n := 0
	for i := range r {
		n += r[i].exemplars
	}
	return n
}

// has reports whether something was refused for a reason.
func (r rejections) has(reason string) bool {
	return slices.ContainsFunc(r, func(one rejection) bool { return one.reason == reason })
}

// text describes for the sender the refusals and their reasons, the most frequent first.
func (r rejections) text(stored int) string {
	sorted := slices.Clone(r)
	slices.SortStableFunc(sorted, func(a, b rejection) int { return b.samples - a.samples })
	var out strings.Builder
	refused := r.samples()
	fmt.Fprintf(&out, "%d of %d samples rejected", refused, refused+stored)
	separator := ": "
	for _, one := range sorted {
		line := separator + one.reason + " (" + one.count() + ")"
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

func (r *rejection) count() string {
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

// printable returns text in one line of ASCII, shortened.
func printable(text string) string {
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
