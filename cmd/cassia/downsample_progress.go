package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cassia-db/cassia/downsample"
)

const (
	// barWidth is the width of the bar in characters.
	barWidth = 24
	// barEvery is the interval between updates of a bar, and lineEvery the interval between lines if there is no
	// terminal.
	barEvery  = 100 * time.Millisecond
	lineEvery = 10 * time.Second
)

// progressBar shows the progress of a plan. On a terminal, it redraws one line. Elsewhere, it prints a new line every
// lineEvery.
type progressBar struct {
	w          io.Writer
	isTerminal bool
	now        func() time.Time
	began      time.Time
	shown      time.Time
}

func newProgressBar(f *os.File, now func() time.Time) *progressBar {
	info, err := f.Stat()
	return &progressBar{w: f, isTerminal: err == nil && info.Mode()&os.ModeCharDevice != 0, now: now,
		began: now(), shown: now()}
}

// update shows the progress of a plan, at most once per barEvery on a terminal and once per lineEvery elsewhere.
func (p *progressBar) update(d downsample.Done) {
	p.showFraction(float64(d.Steps)/float64(max(1, d.All)), func(took time.Duration) string {
		return progressLine(d, took)
	})
}

// showFraction shows the progress, as often as update does. done is the completed fraction of the work, from 0 to 1.
// words returns the text next to the bar.
func (p *progressBar) showFraction(done float64, words func(took time.Duration) string) {
	now := p.now()
	every := lineEvery
	if p.isTerminal {
		every = barEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	line := words(now.Sub(p.began))
	if p.isTerminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s %s", drawBar(done), line)
		return
	}
	fmt.Fprintln(p.w, line)
}

// printLine clears the bar and prints a line that stays on the screen.
func (p *progressBar) printLine(line string) {
	p.clearLine()
	fmt.Fprintln(p.w, line)
}

// clearLine clears the line of the bar.
func (p *progressBar) clearLine() {
	if p.isTerminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// drawBar returns a bar for the completed fraction of the work, from 0 to 1.
func drawBar(done float64) string {
	full := int(barWidth * done)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

// progressLine returns a line with the progress, the rate, and the remaining time.
func progressLine(d downsample.Done, took time.Duration) string {
	line := fmt.Sprintf("%3d%%  %d of %d", 100*d.Steps/max(1, d.All), d.Steps, d.All)
	if d.Steps > 0 && took > 0 {
		rate := float64(d.Steps) / took.Seconds()
		left := time.Duration(float64(d.All-d.Steps) / rate * float64(time.Second))
		line += fmt.Sprintf(", %s/s, %s left", threeDigits(rate), roundDuration(left))
	}
	if d.Failed > 0 {
		line += fmt.Sprintf(", %d failed", d.Failed)
	}
	return line + ": " + d.Now
}

// roundDuration rounds a duration for display.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d > time.Hour:
		return d.Round(time.Minute)
	case d > time.Second:
		return d.Round(time.Second)
	default:
		return d.Round(100 * time.Millisecond)
	}
}
