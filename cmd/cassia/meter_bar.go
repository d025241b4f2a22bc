package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// meterBar shows the progress of an operation that counts its work with an engine.WorkMeter: as one line that changes, on a terminal, and not at all
// elsewhere.
type meterBar struct {
	mu  sync.Mutex
	bar *progressBar
	// what names the operation, and unit the work in words.
	what string
	unit func(n float64) string
	// done of total is done. It began when the first work was expected.
	done, total int64
	began       time.Time
}

// metered returns a context whose operation is shown on a terminal. It returns ctx itself where there is no terminal.
func metered(ctx context.Context, what string) (context.Context, *meterBar) {
	b := newMeterBar(os.Stderr, time.Now, what, dayBytes)
	if !b.bar.terminal {
		return ctx, b
	}
	return b.with(ctx), b
}

func newMeterBar(f *os.File, now func() time.Time, what string, unit func(n float64) string) *meterBar {
	return &meterBar{bar: newProgressBar(f, now), what: what, unit: unit}
}

// with returns a context whose operation is shown.
func (b *meterBar) with(ctx context.Context) context.Context {
	return engine.WithMeter(ctx, engine.NewMeter(b.changed))
}

// changed shows the work that is done, unless it was shown just now.
func (b *meterBar) changed(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total == 0 {
		b.began = b.bar.now()
	}
	b.done, b.total = done, total
	if b.bar.terminal {
		b.bar.show(fraction(done, total), func(time.Duration) string { return b.line(b.bar.now().Sub(b.began)) })
	}
}

// line is the text after the bar.
func (b *meterBar) line(took time.Duration) string {
	line := fmt.Sprintf("%3.0f%%  %s: %s of %s", 100*fraction(b.done, b.total), b.what, b.unit(float64(b.done)), b.unit(float64(b.total)))
	if left, ok := remaining(took, fraction(b.done, b.total)); ok {
		line += fmt.Sprintf(", %s/s, %s left", b.unit(float64(b.done)/took.Seconds()), roughly(left))
	}
	return line
}

// say shows lines that stay.
func (b *meterBar) say(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.end()
	fmt.Fprintln(stdout, line)
}

// end makes room for the result.
func (b *meterBar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.end()
}

func fraction(done, total int64) float64 { return float64(done) / float64(max(1, total)) }

// remaining returns the time that the rest of the work takes, if it takes as long as the part that is done, from 0 to 1.
func remaining(took time.Duration, done float64) (time.Duration, bool) {
	if done <= 0 || took <= 0 {
		return 0, false
	}
	return time.Duration(min(float64(took)*(1-done)/done, 1<<62)), true
}
