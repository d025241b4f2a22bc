package format

import (
	"math"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Windows of rollups are wider than windows of raw rows and the same in every period. The resolutions have separate
// ranges of window numbers, so the number of a window also determines its resolution:
//
//	raw   … 20,600 20,601 …               days since 1970, as long as there is only one period
//	5m    2^40 + … 2,942 2,943 …          weeks
//	1h    2^41 + … 686 687 …              30 days
//
// A day window is always within one window of each rollup, because all windows start at midnight.
const (
	firstWindow5m = int64(rollup.FiveMinutes) << windowShift
	firstWindow1h = int64(rollup.OneHour) << windowShift
	windowShift   = 40

	Window5mMS = 7 * DayMS
	Window1hMS = 30 * DayMS
)

// ResolutionOf returns the resolution of the rows of a window.
func ResolutionOf(window int64) rollup.Resolution {
	if window < 1<<(windowShift-1) {
		return rollup.Raw
	}
	return rollup.Resolution((window + 1<<(windowShift-1)) >> windowShift)
}

// WindowAt returns the window of a resolution that contains a timestamp.
func (p *Periods) WindowAt(res rollup.Resolution, t int64) int64 {
	switch res {
	case rollup.FiveMinutes:
		return firstWindow5m + FloorDiv(t-1, Window5mMS)
	case rollup.OneHour:
		return firstWindow1h + FloorDiv(t-1, Window1hMS)
	default:
		return p.RawWindowAt(t)
	}
}

// WindowOfSlot returns the window of a resolution that contains a slot.
func (p *Periods) WindowOfSlot(res rollup.Resolution, slot int64) int64 {
	return p.WindowAt(res, p.SlotStart(slot)+1)
}

// WindowEnd returns the last timestamp of a window of any resolution in milliseconds.
func (p *Periods) WindowEnd(window int64) int64 {
	switch ResolutionOf(window) {
	case rollup.FiveMinutes:
		return (window - firstWindow5m + 1) * Window5mMS
	case rollup.OneHour:
		return (window - firstWindow1h + 1) * Window1hMS
	default:
		return p.RawWindowEnd(window)
	}
}

// FirstWindow returns the min number of a resolution's windows.
func FirstWindow(res rollup.Resolution) int64 {
	if res == rollup.Raw {
		return -math.MaxInt64
	}
	return int64(res)<<windowShift - 1<<(windowShift-1)
}

// LastWindow returns the max number of a resolution's windows.
func LastWindow(res rollup.Resolution) int64 { return FirstWindow(res+1) - 1 }

// DayOf returns the start of the day that contains a slot, in milliseconds.
func (p *Periods) DayOf(slot int64) int64 { return FloorDiv(p.SlotStart(slot), DayMS) * DayMS }

// TableOf returns the table of a resolution's labels and chunks.
func TableOf(res rollup.Resolution) *engine.Table {
	switch res {
	case rollup.FiveMinutes:
		return engine.R5m
	case rollup.OneHour:
		return engine.R1h
	default:
		return engine.Raw
	}
}

// PagesOf returns the table of a resolution's pages.
func PagesOf(res rollup.Resolution) *engine.Table {
	switch res {
	case rollup.FiveMinutes:
		return engine.R5mPages
	case rollup.OneHour:
		return engine.R1hPages
	default:
		return engine.RawPages
	}
}

// WindowStart returns the start of a window of any resolution in milliseconds.
func (p *Periods) WindowStart(window int64) int64 { return p.WindowEnd(window - 1) }

// WindowSpan returns the time range of the slots of a window in milliseconds.
func (p *Periods) WindowSpan(window int64) (start, end int64) {
	end = p.WindowEnd(window)
	width := p.OfRawWindow(window).RawWindowMS
	switch ResolutionOf(window) {
	case rollup.FiveMinutes:
		width = Window5mMS
	case rollup.OneHour:
		width = Window1hMS
	}
	return end - width, end
}
