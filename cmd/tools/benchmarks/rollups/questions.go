package main

import (
	"fmt"
	"time"
)

// question is a range query.
type question struct {
	text       string
	start, end time.Time
	step       time.Duration
	// what describes what is special about the question, or is empty.
	what string
}

func (q question) String() string {
	text := fmt.Sprintf("%s over %d d", q.text, int(q.end.Sub(q.start).Hours()/24+0.5))
	if q.what != "" {
		text += ", " + q.what
	}
	return text
}

// shift is the offset of an unaligned start from the hour.
const shift = 7*time.Minute + 13*time.Second

// questions returns dashboard queries over a month and over all data, with one point per hour. The queries over all
// data start an hour after the start of the data, so that their first range windows contain about an hour of data.
func questions(d dataset) []question {
	sum := func(inner string) string { return "sum by (job) (" + inner + ")" }
	rate := func(window string) string { return sum("rate(" + counterName + "[" + window + "])") }
	var out []question
	for _, days := range []int{30, d.Days} {
		days = min(days, d.Days)
		start := d.end().AddDate(0, 0, -days).Add(time.Hour)
		add := func(text, what string, shift time.Duration) {
			out = append(out, question{text: text, what: what, start: start.Add(shift), end: d.end(), step: time.Hour})
		}
		add(rate("1h"), "", 0)
		add(rate("1h15s"), "", 0)
		add(rate("1h1m"), "unaligned", shift)
		add("max by (job) (max_over_time("+gaugeName+"[1h]))", "", 0)
		add("max_over_time("+gaugeName+"[1h])", "", 0)
		add("avg by (job) (avg_over_time("+gaugeName+"[1h]))", "", 0)
		add("quantile by (job) (0.9, "+gaugeName+")", "", 0)
		if days == d.Days {
			break
		}
	}
	return out
}
