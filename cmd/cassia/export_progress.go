package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cassia-db/cassia/adapter/exporter"
)

// exportBar shows how far an export has come: as one line that changes, on a terminal, and as lines now and then elsewhere.
type exportBar struct {
	w        io.Writer
	terminal bool
	now      func() time.Time
	began    time.Time
	shown    time.Time
}

func newExportBar(f *os.File, now func() time.Time) *exportBar {
	info, err := f.Stat()
	return &exportBar{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, now: now, began: now(), shown: now()}
}

// update shows it, unless it was shown just now.
func (b *exportBar) update(p exporter.Progress) {
	now, every := b.now(), lineEvery
	if b.terminal {
		every = barEvery
	}
	if now.Sub(b.shown) < every {
		return
	}
	b.shown = now
	line := exportLine(p, now.Sub(b.began))
	if !b.terminal {
		fmt.Fprintln(b.w, line)
		return
	}
	full := int(barWidth * p.Done)
	fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), line)
}

// exportLine returns a line with the progress, the rate, and the time left.
func exportLine(p exporter.Progress, took time.Duration) string {
	line := fmt.Sprintf("%3.0f%%  %s of %s", 100*p.Done, count(int(p.Samples), "sample"), count(p.Series, "series"))
	if left, ok := remaining(took, p.Done); ok {
		line += fmt.Sprintf(", %s/s, %s left", threeDigits(float64(p.Samples)/took.Seconds()), roughly(left))
	}
	return line + ": " + shortInstant(p.NowMS)
}

// say shows a line that stays.
func (b *exportBar) say(line string) {
	b.end()
	fmt.Fprintln(b.w, line)
}

// end makes room for what follows.
func (b *exportBar) end() {
	if b.terminal {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
