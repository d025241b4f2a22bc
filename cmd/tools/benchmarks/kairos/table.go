package main

import (
	"fmt"
	"strings"
	"time"
)

// row is a row of the table: a value per system, and its format.
type row struct {
	what   string
	figure func(*result) float64
	format string
}

func perMillion(d time.Duration, samples int64) float64 { return d.Seconds() / float64(samples) * 1e6 }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

var rows = []row{
	{"CPU a million samples, system and Cassandra, compaction included", func(r *result) float64 { return perMillion(r.all.both(), r.samples) }, "%.2f s"},
	{"… of that, the system", func(r *result) float64 { return perMillion(r.all.system, r.samples) }, "%.2f s"},
	{"… of that, Cassandra", func(r *result) float64 { return perMillion(r.all.cassandra, r.samples) }, "%.2f s"},
	{"… until all was written, the system", func(r *result) float64 { return perMillion(r.load.system, r.samples) }, "%.2f s"},
	{"… until all was written, Cassandra", func(r *result) float64 { return perMillion(r.load.cassandra, r.samples) }, "%.2f s"},
	{"all acknowledged after", func(r *result) float64 { return r.acknowledged.Seconds() }, "%.1f s"},
	{"disk a sample, compacted", func(r *result) float64 { return float64(r.disk) / float64(r.stored) }, "%.2f B"},
	{"the query, median", func(r *result) float64 { return milliseconds(r.answer) }, "%.1f ms"},
	{"the query, CPU of the system and Cassandra", func(r *result) float64 { return milliseconds(r.query.both()) }, "%.0f ms"},
}

// table formats the results as a Markdown table. The last column contains the first system's values divided by the last
// system's.
func table(s settings, results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%d series, %g h every %s, %d samples, %d senders, commit log in %s mode, KairosDB's batches of %d; the "+
			"query sums up %s in %d groups, %d points\n\n| |",
		s.series, s.hours, s.interval, results[0].samples, s.senders, s.commitLog, s.kairosBatch, bucket,
		len(results[0].sums), results[0].sums.points())
	for _, r := range results {
		fmt.Fprintf(&b, " %s |", r.system)
	}
	if len(results) > 1 {
		b.WriteString(" ratio |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(results)+min(len(results)-1, 1)) + "\n")
	for _, line := range rows {
		fmt.Fprintf(&b, "| %s |", line.what)
		for _, r := range results {
			fmt.Fprintf(&b, " "+line.format+" |", line.figure(r))
		}
		if len(results) > 1 {
			fmt.Fprintf(&b, " %.1f |", line.figure(results[0])/line.figure(results[len(results)-1]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
