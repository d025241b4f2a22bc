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
	// barWidth is how many characters the bar takes of a line.
	barWidth = 24
	// barEvery and lineEvery are the time between two looks of a bar, and between two lines where there is no
	// terminal.
	barEvery  = 100 * time.Millisecond
	lineEvery = 10 * time.Second
)

// progressBar shows how far a plan has come: as one line that changes, on a terminal, and as lines now and then
// elsewhere.
type progressBar struct {
	w        io.Writer
	terminal bool
	now      func() time.Time
	began    time.Time
	shown    time.Time
}

func newProgressBar(f *os.File, now func() time.Time) *progressBar {
	info, err := f.Stat()
	return &progressBar{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, now: now, began: now(), shown: now()}
}

// update shows it, unless it was shown just now.
func (p *progressBar) update(d downsample.Done) {
	p.show(float64(d.Steps)/float64(max(1, d.All)), func(took time.Duration) string { return progressLine(d, took) })
}

// show shows how much is done, from 0 to 1, with a line of words, unless it did just now.
func (p *progressBar) show(done float64, words func(took time.Duration) string) {
	now := p.now()
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	line := words(now.Sub(p.began))
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s %s", drawn(done), line)
		return
	}
	fmt.Fprintln(p.w, line)
}

// say shows a line that stays.
func (p *progressBar) say(line string) {
	p.end()
	fmt.Fprintln(p.w, line)
}

// end makes room for what follows.
func (p *progressBar) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// drawn draws how much is done, from 0 to 1.
func drawn(done float64) string {
	full := int(barWidth * done)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

// progressLine returns a line with the progress, the rate, and the time left.
func progressLine(d downsample.Done, took time.Duration) string {
	line := fmt.Sprintf("%3d%%  %d of %d", 100*d.Steps/max(1, d.All), d.Steps, d.All)
	if d.Steps > 0 && took > 0 {
		rate := float64(d.Steps) / took.Seconds()
		left := time.Duration(float64(d.All-d.Steps) / rate * float64(time.Second))
		line += fmt.Sprintf(", %s/s, %s left", threeDigits(rate), roughly(left))
	}
	if d.Failed > 0 {
		line += fmt.Sprintf(", %d failed", d.Failed)
	}
	return line + ": " + d.Now
}

// roughly rounds for people.
func roughly(d time.Duration) time.Duration {
	switch {
	case d > time.Hour:
		return d.Round(time.Minute)
	case d > time.Second:
		return d.Round(time.Second)
	default:
		return d.Round(100 * time.Millisecond)
	}
}
