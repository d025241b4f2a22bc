package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// row is a row of the table: a value per system, and its format.
type row struct {
	what   string
	figure func(*result) float64
	text   func(float64) string
}

func plain(digits int, unit string) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) + unit }
}

func rows(s settings, asked []query) []row {
	perSeries := float64(s.workload.Series)
	rested := []row{
		{"disk, " + short(s.rest) + " after all that, as du shows it", func(r *result) float64 { return float64(r.restedBytes) / 1e6 }, plain(1, " MB")},
		{"memory then", func(r *result) float64 { return float64(r.restedRSS) / (1 << 20) }, plain(0, " MiB")},
		{"memory at most", func(r *result) float64 { return float64(r.peak) / (1 << 20) }, plain(0, " MiB")},
	}
	if s.empty {
		return rested
	}
	out := []row{
		{"CPU for a million samples, all included", func(r *result) float64 { return r.cpu.Seconds() / float64(r.samples) * 1e6 }, plain(2, " s")},
		{"… of that, until all was acknowledged", func(r *result) float64 { return r.load.CPUPerMillion() }, plain(2, " s")},
		{"samples a second", func(r *result) float64 { return r.load.Rate() }, plain(0, "")},
		{"acknowledged after, mean", func(r *result) float64 { return float64(r.load.AckMean) / 1e6 }, plain(1, " ms")},
		{"acknowledged after, 99%", func(r *result) float64 { return float64(r.load.AckP99) / 1e6 }, plain(1, " ms")},
		{"disk a sample, " + short(s.rest) + " after it was sealed, as du shows it", func(r *result) float64 { return float64(r.restedBytes) / float64(r.samples) }, plain(2, " B")},
		rested[1], rested[2],
		{"disk a sample, compacted or sealed", func(r *result) float64 { return float64(r.finalBytes) / float64(r.samples) }, plain(2, " B")},
		{"disk a sample, everything there is", func(r *result) float64 { return float64(r.allBytes) / float64(r.samples) }, plain(2, " B")},
		{"memory a series, after the load", func(r *result) float64 { return float64(r.rss) / perSeries / 1e3 }, plain(1, " kB")},
		{"memory a series, at most", func(r *result) float64 { return float64(r.peak) / perSeries / 1e3 }, plain(1, " kB")},
		{"restart to ready, compacted or sealed", func(r *result) float64 { return r.restartFinished.Seconds() }, plain(2, " s")},
	}
	if !s.queries {
		return out
	}
	out = append(out, row{
		"restart to ready, after the load", func(r *result) float64 { return r.restartLoaded.Seconds() },
		plain(2, " s"),
	})
	return append(append(out, queryRows(asked, "CPU: ", func(t taken) time.Duration { return t.cpu })...),
		queryRows(asked, "time: ", func(t taken) time.Duration { return t.time })...)
}

// queryRows returns a row per query, and a row with the sum of all queries.
func queryRows(asked []query, what string, of func(taken) time.Duration) []row {
	var out []row
	text := plain(2, " ms")
	for i, q := range asked {
		out = append(out, row{
			fmt.Sprintf("%s`%s` %s", what, q.text, q.when()),
			func(r *result) float64 { return float64(of(r.took[i])) / 1e6 }, text,
		})
	}
	return append(out, row{fmt.Sprintf("%sall %d queries", what, len(out)), func(r *result) float64 {
		var sum time.Duration
		for _, took := range r.took {
			sum += of(took)
		}
		return float64(sum) / 1e6
	}, text})
}

// table formats the results as a Markdown table. The last columns contain the last system's values divided by the
// values of each other system.
func table(s settings, results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| |", s.load())
	for _, r := range results {
		fmt.Fprintf(&b, " %s |", r.system)
	}
	last := results[len(results)-1]
	others := results[:len(results)-1]
	for _, o := range others {
		fmt.Fprintf(&b, " ÷ %s |", o.system)
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(results)+len(others)) + "\n")
	for _, line := range rows(s, last.queries) {
		fmt.Fprintf(&b, "| %s |", strings.ReplaceAll(line.what, "|", `\|`))
		for _, r := range results {
			fmt.Fprintf(&b, " %s |", line.text(line.figure(r)))
		}
		for _, o := range others {
			fmt.Fprintf(&b, " %.2f |", line.figure(last)/line.figure(o))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// disagreements returns the queries with different results. Sums may differ in their last digits, because each system
// adds the series in a different order.
func disagreements(results []*result) []string {
	results = slices.DeleteFunc(slices.Clone(results), func(r *result) bool { return !r.exact })
	if len(results) < 2 {
		return nil
	}
	var out []string
	for i, q := range queriesOf(results) {
		if d := disagreement(results[0].answers[i], results[1].answers[i]); d != "" {
			out = append(out, q+": "+d)
		}
	}
	return out
}

func queriesOf(results []*result) []string {
	out := make([]string, len(results[0].answers))
	for i := range out {
		out[i] = fmt.Sprintf("query %d", i+1)
	}
	return out
}

func disagreement(a, b promrig.Answer) string {
	exact := a.Difference(b)
	if exact == "" || len(a.Series) != len(b.Series) {
		return exact
	}
	for i, s := range a.Series {
		o := b.Series[i]
		if s.Labels != o.Labels || len(s.Floats) != len(o.Floats) {
			return exact
		}
		for j := range s.Floats {
			if !near(s.Floats[j], o.Floats[j]) {
				return exact
			}
		}
	}
	return ""
}

// near reports whether two points, in JSON as [time, "value"], are approximately equal.
func near(a, b string) bool {
	parse := func(text string) (at, value float64) {
		var pair [2]any
		if json.Unmarshal([]byte(text), &pair) != nil {
			return math.NaN(), 0
		}
		at, _ = pair[0].(float64)
		word, _ := pair[1].(string)
		value, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return math.NaN(), 0
		}
		return at, value
	}
	atA, a64 := parse(a)
	atB, b64 := parse(b)
	return atA == atB && (a64 == b64 || math.Abs(a64-b64) <= 1e-9*max(math.Abs(a64), math.Abs(b64)) ||
		math.IsNaN(a64) && math.IsNaN(b64))
}
