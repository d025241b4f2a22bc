package main

import (
	"fmt"
	"strings"
	"time"
)

// fillTable returns a table with the disk usage and the CPU time of the samples.
func fillTable(d dataset, k disk, c costs) string {
	var b strings.Builder
	n := float64(d.samples())
	fmt.Fprintf(&b, "%d counters and %d gauges, %d days every %s, until %s: %.1f million samples\n\n",
		d.Counters, d.Gauges, d.Days, time.Duration(d.IntervalMs)*time.Millisecond, d.end().Format(time.DateOnly),
		n/1e6)
	b.WriteString("| disk | bytes a sample | of Prometheus' |\n|---|---:|---:|\n")
	row := func(what string, bytes uint64) {
		fmt.Fprintf(&b, "| %s | %.3f | %.2f |\n", what, float64(bytes)/n, float64(bytes)/float64(k.prometheus))
	}
	row("Prometheus' blocks", uint64(k.prometheus))
	named := uint64(0)
	for _, name := range []string{"raw", "r5m", "r1h"} {
		bytes := k.tables[name] + k.tables[name+"_pages"]
		row("Cassia: "+name, bytes)
		named += bytes
	}
	row("Cassia: raw, r5m and r1h", named)
	row("Cassia: the whole directory, compacted", uint64(k.compacted))
	row("Cassia: the whole directory, as a server left it", uint64(k.left))
	b.WriteString("\n| CPU a million samples | s |\n|---|---:|\n")
	cpu := func(what string, t time.Duration) { fmt.Fprintf(&b, "| %s | %.3f |\n", what, t.Seconds()/n*1e6) }
	cpu("until durable", c.Write)
	cpu("sealing and rolling up", c.Seal)
	b.WriteString("\n")
	return b.String()
}

// queryTable returns a table with the costs of all questions. For Cassia, it contains the costs with one resolution.
func queryTable(resolution string, results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Cassia with resolution=%s:\n\n", resolution)
	b.WriteString(
		"| question, a point an hour | Prometheus: CPU | time | Cassia: CPU | time | CPU less | time less | answered " +
			"from | difference at most, for 99 % |\n",
	)
	b.WriteString("|---|" + strings.Repeat("---:|", 6) + "---|---:|\n")
	var sum result
	var all taken
	line := func(what string, p, c taken, from, difference string) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.1f× | %.1f× | %s | %s |\n",
			what, ms(p.cpu), ms(p.time), ms(c.cpu), ms(c.time), p.cpu.Seconds()/c.cpu.Seconds(),
			p.time.Seconds()/c.time.Seconds(), from, difference)
	}
	for _, r := range results {
		c := r.cassia[resolution]
		line(fmt.Sprintf("`%s`%s", r.question.text, strings.TrimPrefix(r.question.String(), r.question.text)),
			r.prometheus, c.taken, c.from, share(c.relative)+", "+share(c.usual))
		sum.prometheus.cpu += r.prometheus.cpu
		sum.prometheus.time += r.prometheus.time
		all.cpu += c.cpu
		all.time += c.time
	}
	line("all", sum.prometheus, all, "", "")
	b.WriteString("\n")
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1e3) }

// share formats a relative difference, as a percentage unless it is tiny.
func share(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1e-6:
		return fmt.Sprintf("%.0e", v)
	default:
		return fmt.Sprintf("%.2g %%", 100*v)
	}
}
