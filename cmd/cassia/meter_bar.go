package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// meterBar shows the progress of an operation that reports to an engine.WorkMeter. On a terminal, it redraws one line
// in place. Elsewhere, it prints nothing.
type meterBar struct {
	mu  sync.Mutex
	bar *progressBar
	// what describes the operation, such as "checking". unit formats an amount of work.
	what string
	unit func(n float64) string
	// done and total are amounts of work. began is the time at which the first amount was reported.
	done, total int64
	began       time.Time
}

// withMeterBar returns a context that shows the progress of its operation on a terminal. Without a terminal, it returns
// ctx itself.
func withMeterBar(ctx context.Context, what string) (context.Context, *meterBar) {
	b := newMeterBar(os.Stderr, time.Now, what, dayBytes)
	if !b.bar.isTerminal {
		return ctx, b
	}
	return b.withMeter(ctx), b
}

func newMeterBar(f *os.File, now func() time.Time, what string, unit func(n float64) string) *meterBar {
	return &meterBar{bar: newProgressBar(f, now), what: what, unit: unit}
}

// withMeter returns a context that shows the progress of its operation in the bar.
func (b *meterBar) withMeter(ctx context.Context) context.Context {
	return engine.WithMeter(ctx, engine.NewMeter(b.redraw))
}

// redraw redraws the bar, at most once per interval.
func (b *meterBar) redraw(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total == 0 {
		b.began = b.bar.now()
	}
	b.done, b.total = done, total
	if b.bar.isTerminal {
		b.bar.showFraction(fractionOf(done, total), func(time.Duration) string {
			return b.line(b.bar.now().Sub(b.began))
		})
	}
}

// line returns the text after the bar.
func (b *meterBar) line(took time.Duration) string {
	line := fmt.Sprintf("%3.0f%%  %s: %s of %s", 100*fractionOf(b.done, b.total), b.what, b.unit(float64(b.done)),
		b.unit(float64(b.total)))
	if left, ok := remainingTime(took, fractionOf(b.done, b.total)); ok {
		line += fmt.Sprintf(", %s/s, %s left", b.unit(float64(b.done)/took.Seconds()), roundDuration(left))
	}
	return line
}

// printLine clears the bar and prints lines that stay on the screen.
func (b *meterBar) printLine(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.clearLine()
	fmt.Fprintln(stdout, line)
}

// clearBar clears the bar, so that the result can be printed.
func (b *meterBar) clearBar() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.clearLine()
}

func fractionOf(done, total int64) float64 { return float64(done) / float64(max(1, total)) }

// remainingTime estimates the remaining time from the time taken so far and the completed fraction of the work, from 0
// to 1.
func remainingTime(took time.Duration, done float64) (time.Duration, bool) {
	if done <= 0 || took <= 0 {
		return 0, false
	}
	return time.Duration(min(float64(took)*(1-done)/done, 1<<62)), true
}
