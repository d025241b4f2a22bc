package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Level is the severity of a finding.
type Level int

const (
	// OK means that the check passed.
	OK Level = iota
	// Note is a condition that may be intended.
	Note
	// Warning is a condition that will lead to an error, or that reduces the protection against failures.
	Warning
	// Error is an existing problem: samples are lost or at risk, or requests fail.
	Error
)

var levelNames = [...]string{OK: "ok", Note: "note", Warning: "warning", Error: "error"}

func (l Level) String() string { return levelNames[l] }

func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

func (l *Level) UnmarshalText(text []byte) error {
	at := slices.Index(levelNames[:], string(text))
	if at < 0 {
		return fmt.Errorf("%q is not a level of a finding", text)
	}
	*l = Level(at)
	return nil
}

// Finding is a condition that is reported to an operator.
type Finding struct {
	Level Level `json:"level"`
	// What describes the condition. It is always set.
	What string `json:"what"`
	// Why describes the consequence of the condition.
	Why string `json:"why,omitempty"`
	// Do is the remedy, with one command or statement per line.
	Do string `json:"do,omitempty"`
}

func ok(format string, args ...any) Finding {
	return Finding{Level: OK, What: fmt.Sprintf(format, args...)}
}

// SortFindings sorts findings by severity, the most severe first. The sort is stable.
func SortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(b.Level, a.Level) })
}

// CountLevel returns the number of findings with a level.
func CountLevel(findings []Finding, level Level) (n int) {
	for _, f := range findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

// Write writes findings as text, in their order.
func Write(w io.Writer, findings []Finding) error {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %s\n", f.Level, f.What)
		writeSection(&b, "why", f.Why)
		writeSection(&b, "do", f.Do)
	}
	fmt.Fprintf(&b, "%s\n", Summary(findings))
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSection(b *strings.Builder, name, text string) {
	if text == "" {
		return
	}
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(b, "         %-4s %s\n", name, line)
	}
}

// Summary returns the number of findings per level as text.
func Summary(findings []Finding) string {
	return fmt.Sprintf("%s, %s, %s, %d ok", plural(CountLevel(findings, Error), "error"),
		plural(CountLevel(findings, Warning), "warning"),
		plural(CountLevel(findings, Note), "note"), CountLevel(findings, OK))
}

// WriteJSON writes findings as JSON: {"where":…,"findings":[{"level":…,"what":…,"why":…,"do":…},…]}.
func WriteJSON(w io.Writer, where string, findings []Finding) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Where    string    `json:"where"`
		Findings []Finding `json:"findings"`
	}{where, append([]Finding{}, findings...)})
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") { // such as "process"
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// maxListed is the max number of names that a finding lists.
const maxListed = 5

// joinNames joins names. If there are more than maxListed, it omits the rest and adds their number.
func joinNames(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// formatApprox formats a duration with a precision of about two digits.
func formatApprox(d time.Duration) string {
	switch a := d.Abs(); {
	case a >= 48*time.Hour:
		return fmt.Sprintf("%.0f d", d.Hours()/24)
	case a >= 2*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	case a >= 2*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}
