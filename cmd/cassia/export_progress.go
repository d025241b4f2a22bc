package main

import (
	"fmt"
	"time"

	"github.com/cassia-db/cassia/adapter/exporter"
)

// showExport shows how far an export has come.
func (p *progressBar) showExport(e exporter.Progress) {
	p.show(e.Done, func(took time.Duration) string { return exportLine(e, took) })
}

// exportLine returns a line with the progress, the rate, and the time left.
func exportLine(p exporter.Progress, took time.Duration) string {
	line := fmt.Sprintf("%3.0f%%  %s of %s", 100*p.Done, count(int(p.Samples), "sample"), count(p.Series, "series"))
	if left, ok := remaining(took, p.Done); ok {
		line += fmt.Sprintf(", %s/s, %s left", threeDigits(float64(p.Samples)/took.Seconds()), roughly(left))
	}
	return line + ": " + shortInstant(p.NowMS)
}
