package main

import (
	"fmt"
	"time"

	"github.com/cassia-db/cassia/adapter/exporter"
)

// showExport shows the progress of an export.
func (p *progressBar) showExport(e exporter.Progress) {
	p.showFraction(e.Done, func(took time.Duration) string { return exportLine(e, took) })
}

// exportLine returns a line with the progress, the rate, and the remaining time.
func exportLine(p exporter.Progress, took time.Duration) string {
	line := fmt.Sprintf("%3.0f%%  %s of %s", 100*p.Done, countNoun(int(p.Samples), "sample"),
		countNoun(p.Series, "series"))
	if left, ok := remainingTime(took, p.Done); ok {
		line += fmt.Sprintf(", %s/s, %s left", threeDigits(float64(p.Samples)/took.Seconds()), roundDuration(left))
	}
	return line + ": " + shortInstant(p.NowMS)
}
